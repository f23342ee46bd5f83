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
// them. Creation and windows end with a CommError after `timeout`. CheckPending throws it for a collective
// that has not started, or not ended since the GPU reached it, for so long; the process must exit then, since
// the start may wait for good.
//
// NCCL does not notice that a peer on the same machine has died: its kernels keep waiting. Watchdog notices
// it. Abort returns within 0.3 s even if NCCL does not return; the process must exit then.

// Collective: all `size` ranks call it. Rank 0 sets the group's id in `store` under `prefix`, which is unique
// per group and attempt. job_rank: this rank's number in error messages; by default its rank in the group.
// ctas: the most thread blocks of a collective where `options` say nothing of them; 0: as many as NCCL takes.
std::unique_ptr<Communicator> MakeNcclCommunicator(const std::string& name, Store& store,
                                                   const std::string& prefix, int rank, int size, int device,
                                                   absl::Duration timeout,
                                                   const parallel::GroupOptions& options = {},
                                                   std::optional<int> job_rank = {}, int ctas = 0);

// Collective over the ranks of `parent`, a communicator of NCCL: makes another one with the same members in
// the same order from the live one (ncclCommSplit). The two share neither resources nor options.
std::unique_ptr<Communicator> CloneNcclCommunicator(const std::string& name, Communicator& parent,
                                                    const parallel::GroupOptions& options = {}, int ctas = 0);

// Groups on GPU `device`; clones if there is a live communicator. A link (parallel::IsLink) has moved its
// first byte. A group of one rank does not use NCCL
// (lone_communicator.h). Memory is ncclMemAlloc's, so that windows over it can be registered.
std::unique_ptr<CommunicatorFactory> MakeNcclFactory(Rendezvous rendezvous, int device);

}  // namespace tandem::comm
