// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/communicator_factory.h"

namespace tandem::comm {

// Groups of ranks with a GPU each, over NCCL. Collectives are enqueued on the current stream of GPU `device`
// (an index among those that this process sees) and never block the host for longer than NCCL takes to start
// them. Nothing here waits forever: creation, starts, and what is pending end with a CommError at `timeout`,
// which counts from when the GPU has reached a collective, however long before that it was enqueued.
//
// NCCL does not notice that a peer on the same machine has died: its kernels go on waiting. Watchdog does.
// Abort returns within 0.3 s even where NCCL does not; such a process must then be left.

// Collective: all `size` ranks make theirs. Rank 0 sets the group's id in `store` under `prefix`, unique per
// group and attempt. job_rank: what errors call this one; without it its place in the group.
std::unique_ptr<Communicator> MakeNcclCommunicator(const std::string& name, Store& store,
                                                   const std::string& prefix, int rank, int size, int device,
                                                   absl::Duration timeout,
                                                   const parallel::GroupOptions& options = {},
                                                   std::optional<int> job_rank = {});

// Collective over the ranks of `parent`, one of the above: another communicator of the same members in the
// same order, made from the live one (ncclCommSplit), which shares no resources with it, nor options.
std::unique_ptr<Communicator> CloneNcclCommunicator(const std::string& name, Communicator& parent,
                                                    const parallel::GroupOptions& options = {});

// Groups on GPU `device`; clones where there is a live communicator. A group of one rank is none of NCCL's
// (lone_communicator.h). Memory is ncclMemAlloc's, so that windows over it can be registered.
std::unique_ptr<CommunicatorFactory> MakeNcclFactory(Rendezvous rendezvous, int device);

}  // namespace tandem::comm
