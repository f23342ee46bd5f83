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

// An ncclComm_t that several threads use. To abort it frees it, so it is aborted only while no thread is
// inside a call into NCCL: the last NcclCall that ends does so if one was running. Thread-safe.
class NcclHandle {
 public:
  NcclHandle(std::string name, parallel::GroupOptions options, int device)
      : name_(std::move(name)), options_(std::move(options)), device_(device) {}
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // NCCL keeps pointers to both.
  const std::string& name() const { return name_; }
  const parallel::GroupOptions& options() const { return options_; }
  int device() const { return device_; }

  // Stores the communicator when it has been created; aborts it if Abort has been called.
  void Set(ncclComm_t comm) ABSL_LOCKS_EXCLUDED(mu_);

  // Aborts the communicator, now or when the last call returns, and with it the pending collectives. No
  // NcclCall begins after this. Waits for NCCL for 0.3 s at most.
  void Abort() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the communicator, which the caller destroys; null if it is aborted, or if a call is running,
  // which aborts it when it ends. No NcclCall begins after this.
  ncclComm_t Take() ABSL_LOCKS_EXCLUDED(mu_);

  // Whether an NcclCall has the communicator.
  bool is_called() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class NcclCall;

  ncclComm_t Enter() ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the communicator if it is to be aborted now, else null.
  ncclComm_t TakeAborted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Aborts `comm`, unless it is null. Waits for NCCL for 0.3 s at most.
  void End(ncclComm_t comm) const;

  const std::string name_;
  const parallel::GroupOptions options_;
  const int device_;
  mutable absl::Mutex mu_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mu_) = nullptr;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;  // NcclCall objects that have the communicator
  bool is_aborted_ ABSL_GUARDED_BY(mu_) = false;
};

// Keeps a communicator from being aborted while this object lives.
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

  ncclComm_t comm() const { return comm_; }  // null if it is aborted, taken or not yet created

 private:
  std::shared_ptr<NcclHandle> handle_;
  ncclComm_t comm_;
};

}  // namespace tandem::comm
