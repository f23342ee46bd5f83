// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/communicator_factory.h"

namespace tandem::comm {

// NCCL groups of ranks that have a GPU each. `device` is the GPU's index among those that this process sees.
// A collective is enqueued on the GPU's current stream. Its call returns once NCCL has enqueued it. NCCL
// connects two ranks when the first bytes go between them, and the call waits for both.
//
// Creation, the registration of windows and the call of a group's first collective throw CommError if they
// take longer than `timeout`. CheckPending throws it if the call of another collective takes so long, or if a
// collective has not ended for so long since the GPU reached it. The process must exit after that, because a
// thread may be inside NCCL for good.
//
// NCCL does not notice that a peer on the same machine has died: its kernels go on waiting. Watchdog notices
// it. Abort returns within 0.3 s. It aborts at once, or when the last call into NCCL returns; if that takes
// longer, the process must exit.

// Creates a group. All `size` ranks call this together. Rank 0 sets the group's id in `store` under `prefix`,
// which is unique for each group and attempt. job_rank: this rank's number in error messages; by default its
// rank in the group. ctas: the largest number of thread blocks of a collective if `options` do not give one;
// 0: NCCL chooses it.
std::unique_ptr<Communicator> MakeNcclCommunicator(const std::string& name, Store& store,
                                                   const std::string& prefix, int rank, int size, int device,
                                                   absl::Duration timeout,
                                                   const parallel::GroupOptions& options = {},
                                                   std::optional<int> job_rank = {}, int ctas = 0);

// Creates a group with the ranks of `parent`, in their order (ncclCommSplit). All of them call this together.
// The two groups share neither resources nor options. Throws std::logic_error if `parent` is not NCCL's.
std::unique_ptr<Communicator> CloneNcclCommunicator(const std::string& name, Communicator& parent,
                                                    const parallel::GroupOptions& options = {}, int ctas = 0);

// Returns a factory of groups on GPU `device`. It clones a group if it is given a communicator with the same
// ranks. A link (parallel::IsLink) that it returns has already moved its first byte, so it is connected. A
// group of one rank does not use NCCL (lone_communicator.h). Its memory is allocated by ncclMemAlloc, so that
// windows over it can be registered.
std::unique_ptr<CommunicatorFactory> MakeNcclFactory(Rendezvous rendezvous, int device);

}  // namespace tandem::comm
