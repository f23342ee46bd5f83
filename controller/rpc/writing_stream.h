// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "controller/rpc/owned_stream.h"

namespace tandem::controller {

// An OwnedStream that writes one message at a time, and ends when the one that is being written has left.
template <typename Reactor, typename Message, typename Self>
class WritingStream : public OwnedStream<Reactor, Self> {
 public:
  // The first status that it is given is the stream's.
  virtual void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (!end_.has_value()) {
      end_ = status;
    }
    WriteNext();
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) {
      End(grpc::Status::OK);
    }
    const absl::MutexLock lock(&mu_);
    writing_ = false;
    WriteNext();
  }

 protected:
  using OwnedStream<Reactor, Self>::finished_;
  using OwnedStream<Reactor, Self>::mu_;

  // Writes the next thing that is owed, or ends the stream. Does nothing while writing_, or when finished_.
  virtual void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  void WriteOutgoing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = true;
    this->StartWrite(&outgoing_);
  }

  void FinishWithEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    finished_ = true;
    this->Finish(*end_);
  }

  Message outgoing_;  // of the chain of writes
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::controller
