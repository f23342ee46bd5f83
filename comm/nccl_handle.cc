// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_handle.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <future>
#include <system_error>
#include <thread>

namespace tandem::comm {

void NcclHandle::Set(ncclComm_t comm) {
  ncclComm_t aborted = nullptr;
  {
    const absl::MutexLock lock(&mu_);
    comm_ = comm;
    aborted = TakeAborted();
  }
  End(aborted);
}

void NcclHandle::Abort() {
  ncclComm_t aborted = nullptr;
  {
    const absl::MutexLock lock(&mu_);
    is_aborted_ = true;
    aborted = TakeAborted();
  }
  End(aborted);
}

ncclComm_t NcclHandle::Take() {
  const absl::MutexLock lock(&mu_);
  is_aborted_ = is_aborted_ || calls_ > 0;
  return is_aborted_ ? nullptr : std::exchange(comm_, nullptr);
}

bool NcclHandle::is_called() const {
  const absl::MutexLock lock(&mu_);
  return calls_ > 0;
}

ncclComm_t NcclHandle::Enter() {
  const absl::MutexLock lock(&mu_);
  if (is_aborted_ || comm_ == nullptr) {
    return nullptr;
  }
  ++calls_;
  return comm_;
}

void NcclHandle::Leave() {
  ncclComm_t aborted = nullptr;
  {
    const absl::MutexLock lock(&mu_);
    --calls_;
    aborted = TakeAborted();
  }
  End(aborted);
}

ncclComm_t NcclHandle::TakeAborted() {
  return is_aborted_ && calls_ == 0 ? std::exchange(comm_, nullptr) : nullptr;
}

// Calls NCCL on a thread of its own, because the call waits for kernels, which see that they are to end, and
// perhaps for more. A collective of copy engines does not see it: the GPU waits for its peers' flags in
// memory, forever if a peer is gone, until the process ends.
void NcclHandle::End(ncclComm_t comm) const {
  constexpr std::chrono::milliseconds kPatience{300};
  if (comm == nullptr) {
    return;
  }
  std::promise<void> done;
  std::future<void> ended = done.get_future();
  try {
    std::thread([comm, device = device_, done = std::move(done)]() mutable {
      cudaSetDevice(device);
      ncclCommAbort(comm);
      done.set_value();
    }).detach();
  } catch (const std::system_error&) {
    return;  // no thread can start, so the process must end first
  }
  ended.wait_for(kPatience);
}

}  // namespace tandem::comm
