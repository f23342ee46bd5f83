// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "controller/rpc/rpc_errors.h"

namespace tandem::controller {

// A reactor of gRPC, `Self`, that keeps itself alive until gRPC is done with it. From then on finished_ is
// true, also for objects that still hold a reference to it.
template <typename Reactor, typename Self>
class OwnedStream : public Reactor, public std::enable_shared_from_this<Self> {
 public:
  // Call it before the first operation.
  void Own() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    self_ = this->shared_from_this();
  }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mu_) {
    // Released, and perhaps deleted, after the lock.
    std::shared_ptr<Self> self;
    const absl::MutexLock lock(&mu_);
    finished_ = true;
    self.swap(self_);
  }

 protected:
  mutable absl::Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // Finish was called, or gRPC is done

 private:
  std::shared_ptr<Self> self_ ABSL_GUARDED_BY(mu_);
};

// Returns references to the streams that still exist.
template <typename Stream>
std::vector<std::shared_ptr<Stream>> LiveOf(const std::map<const Stream*, std::weak_ptr<Stream>>& streams) {
  std::vector<std::shared_ptr<Stream>> live;
  for (const auto& [pointer, weak] : streams) {
    if (std::shared_ptr<Stream> stream = weak.lock()) {
      live.push_back(std::move(stream));
    }
  }
  return live;
}

// An OwnedStream that writes one message at a time, and ends when the one that is being written has left.
template <typename Reactor, typename Message, typename Self>
class WritingStream : public OwnedStream<Reactor, Self> {
 public:
  // Ends the stream with the status of the first call.
  virtual void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (!end_.has_value()) {
      end_ = status;
    }
    WriteNext();
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) {  // the client is gone; a stream that also reads ends as its failed read would end it
      constexpr bool kReads = requires { &Reactor::OnReadDone; };
      End(kReads ? grpc::Status::OK : grpc::Status::CANCELLED);
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

// Converts to the reactor of any stream: one that ends with `status` before anything is read or written.
struct RefuseCall {
  template <typename Reactor>
  operator Reactor*() const {  // NOLINT(google-explicit-constructor): it is the method's type
    class Refused : public Reactor {
     public:
      explicit Refused(const absl::Status& why) { this->Finish(ToRpc(why)); }
      void OnDone() override { delete this; }
    };
    return new Refused(status);
  }
  const absl::Status status;
};

}  // namespace tandem::controller
