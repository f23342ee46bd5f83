// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/watch_stream.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cli/cluster/connection.h"

namespace tandem::cli {

// Reads on a thread of its own, one response ahead, so that waits for the next go by the steady clock.
class WatchStream::Reader {
 public:
  Reader(const Address& address, const v1::WatchRequest& request)
      : connection_(address), request_(request), thread_([this] { Run(); }) {}

  ~Reader() {
    {
      const std::lock_guard lock(mu_);
      stopping_ = true;
      if (context_ != nullptr) {
        context_->TryCancel();
      }
      changed_.notify_all();
    }
    thread_.join();
  }

  Event Next(absl::Duration limit, v1::WatchResponse& response) {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(limit),
                      [this] { return response_.has_value() || closed_; });
    if (response_.has_value()) {
      response = *std::move(response_);
      response_.reset();
      changed_.notify_all();
      return Event::kResponse;
    }
    return closed_ ? Event::kClosed : Event::kTimeout;
  }

  // Once Next has returned kClosed.
  const absl::Status& status() const { return status_; }

 private:
  void Run() {
    absl::Status status = connection_.Call(
        absl::InfiniteDuration(), [this](v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began) {
          return Read(stub, context, began);
        });
    const std::lock_guard lock(mu_);
    status_ = std::move(status);
    closed_ = true;
    changed_.notify_all();
  }

  grpc::Status Read(v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began) {
    {
      const std::lock_guard lock(mu_);
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
    const std::lock_guard lock(mu_);
    context_ = nullptr;
    return status;
  }

  // Waits until the response before was taken.
  void Hand(v1::WatchResponse response) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return !response_.has_value() || stopping_; });
    response_ = std::move(response);
    changed_.notify_all();
  }

  Connection connection_;
  const v1::WatchRequest request_;
  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;                      // guarded by mu_
  grpc::ClientContext* context_ = nullptr;     // guarded by mu_; of the call that is open
  std::optional<v1::WatchResponse> response_;  // guarded by mu_
  bool closed_ = false;                        // guarded by mu_
  absl::Status status_;                        // written before closed_
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
