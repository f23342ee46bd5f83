// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/watch_stream.h"

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/cluster/connection.h"
#include "platform/steady_condition.h"

namespace tandem::cli {

// Reads on a thread of its own, one response ahead, so that waits for the next go by the steady clock.
class WatchStream::Reader {
 public:
  Reader(const Address& address, const v1::WatchRequest& request)
      : connection_(address), request_(request), thread_([this] { Run(); }) {}

  ~Reader() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (context_ != nullptr) {
        context_->TryCancel();
      }
      changed_.NotifyAll();
    }
    thread_.join();
  }

  Event Next(absl::Duration limit, v1::WatchResponse& response) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(
        mu_, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return response_.has_value() || closed_; });
    if (response_.has_value()) {
      response = *std::move(response_);
      response_.reset();
      changed_.NotifyAll();
      return Event::kResponse;
    }
    return closed_ ? Event::kClosed : Event::kTimeout;
  }

  // Once Next has returned kClosed.
  const absl::Status& status() const { return status_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::Status status = connection_.Call(
        absl::InfiniteDuration(), [this](v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began) {
          return Read(stub, context, began);
        });
    const absl::MutexLock lock(&mu_);
    status_ = std::move(status);
    closed_ = true;
    changed_.NotifyAll();
  }

  grpc::Status Read(v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began)
      ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      if (stopping_) {
        return grpc::Status::CANCELLED;
      }
      context_ = &context;
    }
    const std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader = stub.Watch(&context, request_);
    v1::WatchResponse response;
    while (reader->Read(&response)) {
      began = true;
      Hand(std::exchange(response, {}));
    }
    const grpc::Status status = reader->Finish();
    const absl::MutexLock lock(&mu_);
    context_ = nullptr;
    return status;
  }

  // Waits until the response before was taken.
  void Hand(v1::WatchResponse response) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(mu_, absl::InfiniteDuration(), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !response_.has_value() || stopping_;
    });
    response_ = std::move(response);
    changed_.NotifyAll();
  }

  Connection connection_;
  const v1::WatchRequest request_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of what follows
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the call that is open
  std::optional<v1::WatchResponse> response_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_;  // written before closed_, and not afterwards
  std::thread thread_;
};

WatchStream::WatchStream(const Address& address, const v1::WatchRequest& request)
    : reader_(std::make_unique<Reader>(address, request)) {}

WatchStream::~WatchStream() = default;

WatchStream::Event WatchStream::Next(absl::Duration limit, v1::WatchResponse& response) {
  return reader_->Next(limit, response);
}

const absl::Status& WatchStream::status() const { return reader_->status(); }

}  // namespace tandem::cli
