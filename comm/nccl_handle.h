// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "parallel/group_options.h"

namespace tandem::comm {

// A communicator of NCCL, shared by the threads that call it. NCCL frees it when it is aborted, so an abort
// waits until no call is inside NCCL. Thread-safe; no call here waits.
class NcclHandle {
 public:
  NcclHandle(std::string name, parallel::GroupOptions options, int device)
      : name_(std::move(name)), options_(std::move(options)), device_(device) {}
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // NCCL points to both.
  const std::string& name() const { return name_; }
  const parallel::GroupOptions& options() const { return options_; }
  int device() const { return device_; }

  // The created communicator.
  void Set(ncclComm_t comm) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the collectives that are pending, now or when the last call returns. No call starts any more.
  void Abort() ABSL_LOCKS_EXCLUDED(mu_);

  // The communicator, for its end; null if it is aborted. No call starts any more.
  ncclComm_t Take() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class NcclCall;

  ncclComm_t Enter() ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  // The communicator if it is to be aborted now, else null.
  ncclComm_t TakeAborted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Aborts `comm`, and waits for it for 0.3 s.
  void End(ncclComm_t comm) const;

  const std::string name_;
  const parallel::GroupOptions options_;
  const int device_;
  absl::Mutex mu_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mu_) = nullptr;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;  // inside NCCL
  bool is_aborted_ ABSL_GUARDED_BY(mu_) = false;
};

// A call into NCCL, as long as this object lives.
class NcclCall {
 public:
  explicit NcclCall(std::shared_ptr<NcclHandle> handle)
      : handle_(std::move(handle)), comm_(handle_->Enter()) {}
  ~NcclCall() {
    if (comm_ != nullptr) {
      handle_->Leave();
    }
  }
  NcclCall(NcclCall&& other) noexcept
      : handle_(std::move(other.handle_)), comm_(std::exchange(other.comm_, nullptr)) {}
  NcclCall& operator=(NcclCall&&) = delete;

  ncclComm_t comm() const { return comm_; }  // null if the communicator is aborted

 private:
  std::shared_ptr<NcclHandle> handle_;
  ncclComm_t comm_;
};

}  // namespace tandem::comm
