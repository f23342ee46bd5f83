// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/watch_stream.h"

#include <optional>

#include "controller/rpc/streams.h"

namespace tandem::controller {

class WatchStream
    : public WritingStream<grpc::ServerWriteReactor<v1::WatchResponse>, v1::WatchResponse, WatchStream> {
 public:
  WatchStream(Watches& watches, std::unique_ptr<WatchReader> reader, const platform::Clock& clock)
      : watches_(watches), clock_(clock), reader_(std::move(reader)) {}

  void Start() {
    Own();
    Pump();
  }

  // Sends the next response if the one before it has been sent and there is one.
  void Pump() {
    const absl::MutexLock lock(&mu_);
    WriteNext();
  }

  absl::Time due() {
    const absl::MutexLock lock(&mu_);
    return writing_ || finished_ || reader_ == nullptr ? absl::InfiniteFuture() : reader_->due();
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    watches_.Leave(this);
    OwnedStream::OnDone();
  }

 private:
  void WriteNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) {
      return;
    }
    if (!end_.has_value()) {
      absl::StatusOr<std::optional<v1::WatchResponse>> next = reader_->Next(clock_.Now());
      if (next.ok() && !next->has_value()) {
        return;
      }
      if (next.ok()) {
        outgoing_ = **std::move(next);
        WriteOutgoing();
        return;
      }
      end_ = ToRpc(next.status());
    }
    FinishWithEnd();
  }

  Watches& watches_;
  const platform::Clock& clock_;
  std::unique_ptr<WatchReader> reader_ ABSL_GUARDED_BY(mu_);
};

namespace {

constexpr absl::Duration kTimerStep = absl::Milliseconds(50);

}  // namespace

Watches::Watches(Store& store, History& history, const ProgressBoard& progress, const platform::Clock& clock)
    : store_(store), history_(history), progress_(progress), clock_(clock), thread_([this] { Run(); }) {}

Watches::~Watches() {
  Close();
  thread_.join();
}

grpc::ServerWriteReactor<v1::WatchResponse>* Watches::Open(const v1::WatchRequest& request) {
  absl::StatusOr<std::unique_ptr<WatchReader>> reader =
      WatchReader::Open(store_, history_, progress_, request, clock_.Now());
  if (!reader.ok()) {
    return RefuseCall{reader.status()};
  }
  const auto stream = std::make_shared<WatchStream>(*this, *std::move(reader), clock_);
  {
    const absl::MutexLock lock(&mu_);
    if (closed_) {
      return RefuseCall{absl::UnavailableError("the controller is shutting down")};
    }
    streams_[stream.get()] = stream;
    changed_.NotifyAll();
  }
  stream->Start();
  return stream.get();
}

void Watches::Poke() {
  const absl::MutexLock lock(&mu_);
  poked_ = true;
  changed_.NotifyAll();
}

void Watches::Leave(const WatchStream* stream) {
  const absl::MutexLock lock(&mu_);
  streams_.erase(stream);
}

std::vector<std::shared_ptr<WatchStream>> Watches::All() {
  const absl::MutexLock lock(&mu_);
  return LiveOf(streams_);
}

void Watches::Close() {
  {
    const absl::MutexLock lock(&mu_);
    closed_ = true;
    changed_.NotifyAll();
  }
  for (const std::shared_ptr<WatchStream>& stream : All()) {
    stream->End({grpc::StatusCode::UNAVAILABLE, "the controller is shutting down"});
  }
}

void Watches::Run() {
  while (true) {
    bool poked = false;
    {
      const absl::MutexLock lock(&mu_);
      // Also woken by the first stream, which may have something due without a poke.
      if (!poked_ && !closed_) {
        changed_.WaitFor(mu_, streams_.empty() ? absl::InfiniteDuration() : kTimerStep);
      }
      if (closed_) {
        return;
      }
      poked = std::exchange(poked_, false);
    }
    const absl::Time now = clock_.Now();
    for (const std::shared_ptr<WatchStream>& stream : All()) {
      if (poked || stream->due() <= now) {
        stream->Pump();
      }
    }
  }
}

}  // namespace tandem::controller
