// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/store.h"

namespace tandem::comm {

// A group over TCP between processes (c10d's ProcessGroupGloo). Collective: blocks until all `size` ranks
// have made theirs, which is what makes its creation a barrier.
//
// prefix: of the keys in `store`, unique per group and attempt. data_address: host name or IP address of
// this machine that the others reach; an ephemeral port is bound there. timeout: for the creation, and for
// every collective. ranks: of the job, in the group's order, which errors name; empty: 0 to size - 1. A group
// of one rank needs neither store nor network. Throws CommError naming group, rank, operation and what the
// peer did. After Abort, or an error, a call that is already waiting ends with its timeout or the process
// (Gloo cannot cancel it). The process ignores SIGPIPE: Gloo writes to peers that are gone.
std::unique_ptr<Communicator> MakeGlooCommunicator(const std::string& name, std::shared_ptr<Store> store,
                                                   const std::string& prefix, int rank, int size,
                                                   const std::string& data_address, absl::Duration timeout,
                                                   const std::vector<int>& ranks = {});

}  // namespace tandem::comm
