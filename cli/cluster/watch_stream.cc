// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/watch_stream.h"

#include <utility>

#include "cli/cluster/connection.h"

namespace tandem::cli {

WatchStream::WatchStream(const Address& address, const v1::WatchRequest& request)
    : connection_(std::make_unique<Connection>(address)), request_(request), thread_([this] { Run(); }) {}

WatchStream::~WatchStream() {
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

WatchStream::Event WatchStream::Next(absl::Duration limit, v1::WatchResponse& response) {
  const absl::MutexLock lock(&mu_);
  changed_.AwaitFor(mu_, limit,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return response_.has_value() || closed_; });
  if (response_.has_value()) {
    response = *std::exchange(response_, std::nullopt);
    changed_.NotifyAll();
    return Event::kResponse;
  }
  return closed_ ? Event::kClosed : Event::kTimeout;
}

void WatchStream::Run() {
  absl::Status status = connection_->Call(
      absl::InfiniteDuration(), [this](v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began) {
        if (!Open(&context)) {
          return grpc::Status::CANCELLED;
        }
        const std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader = stub.Watch(&context, request_);
        v1::WatchResponse response;
        while (reader->Read(&response)) {
          began = true;
          Hand(std::exchange(response, {}));
        }
        const grpc::Status ended = reader->Finish();
        Open(nullptr);
        return ended;
      });
  const absl::MutexLock lock(&mu_);
  status_ = std::move(status);
  closed_ = true;
  changed_.NotifyAll();
}

bool WatchStream::Open(grpc::ClientContext* context) {
  const absl::MutexLock lock(&mu_);
  context_ = stopping_ ? nullptr : context;
  return context_ != nullptr;
}

void WatchStream::Hand(v1::WatchResponse response) {
  const absl::MutexLock lock(&mu_);
  changed_.AwaitFor(mu_, absl::InfiniteDuration(), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !response_.has_value() || stopping_;
  });
  response_ = std::move(response);
  changed_.NotifyAll();
}

}  // namespace tandem::cli
