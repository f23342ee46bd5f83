// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/upload_stream.h"

#include <memory>
#include <optional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "controller/rpc/request_limits.h"
#include "controller/rpc/rpc_errors.h"

namespace tandem::controller {
namespace {

// What a reader gets of a chunk.
void Take(v1::UploadChunk& from, v1::LogChunk& to) { to = std::move(*from.mutable_chunk()); }
void Take(v1::UploadChunk& from, v1::ProfileChunk& to) { to = std::move(*from.mutable_profile()); }

template <typename Chunk>
class ReaderStream : public grpc::ServerWriteReactor<Chunk> {
 public:
  explicit ReaderStream(UploadRelay& relay) : relay_(relay) {}

  void Start(std::shared_ptr<ReaderStream> self,
             const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
    {
      const absl::MutexLock lock(&mu_);
      self_ = self;
      if (!wanted.ok()) {
        finished_ = true;
        this->Finish(ToRpc(wanted.status()));
        return;
      }
    }
    const uint64_t reader = relay_.Open(*wanted, [weak = std::weak_ptr<ReaderStream>(self)] {
      if (const std::shared_ptr<ReaderStream> stream = weak.lock()) {
        stream->Pump();
      }
    });
    {
      const absl::MutexLock lock(&mu_);
      reader_ = reader;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    {
      const absl::MutexLock lock(&mu_);
      writing_ = false;
      cancelled_ = cancelled_ || !ok;
    }
    Pump();
  }

  void OnCancel() override {
    {
      const absl::MutexLock lock(&mu_);
      cancelled_ = true;
    }
    Pump();
  }

  void OnDone() override {
    std::optional<uint64_t> reader;
    // Dropped, and perhaps deleted, after the lock is released.
    std::shared_ptr<ReaderStream> self;
    {
      const absl::MutexLock lock(&mu_);
      reader = reader_;
      finished_ = true;
      self.swap(self_);
    }
    if (reader.has_value()) {
      relay_.Close(*reader);
    }
  }

 private:
  void Pump() {
    const absl::MutexLock lock(&mu_);
    if (writing_ || finished_ || !reader_.has_value()) {
      return;
    }
    if (cancelled_) {
      finished_ = true;
      this->Finish(grpc::Status::CANCELLED);
      return;
    }
    UploadRelay::Next next = relay_.Read(*reader_);
    if (next.chunk.has_value()) {
      Take(*next.chunk, outgoing_);
      writing_ = true;
      this->StartWrite(&outgoing_);
    } else if (next.end) {
      finished_ = true;
      this->Finish(grpc::Status::OK);
    }
  }

  UploadRelay& relay_;
  Chunk outgoing_;
  absl::Mutex mu_;
  std::shared_ptr<ReaderStream> self_ ABSL_GUARDED_BY(mu_);
  std::optional<uint64_t> reader_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

class UploadStream : public grpc::ServerReadReactor<v1::UploadChunk> {
 public:
  UploadStream(UploadRelay& relay, tls::Identity identity) : relay_(relay), identity_(std::move(identity)) {}

  void Start(std::shared_ptr<UploadStream> self) {
    {
      const absl::MutexLock lock(&mu_);
      self_ = std::move(self);
    }
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      for (const std::string& upload : uploads_) {
        relay_.Finish(upload);
      }
      End(grpc::Status::OK);
      return;
    }
    if (const absl::Status limits = CheckLimits(incoming_); !limits.ok()) {
      End(ToRpc(limits));
      return;
    }
    uploads_.insert(incoming_.upload());
    std::shared_ptr<UploadStream> self;
    {
      const absl::MutexLock lock(&mu_);
      self = self_;
    }
    switch (relay_.Deliver(incoming_, identity_, [self] { self->Resume(); })) {
      case UploadRelay::Taken::kOk:
        Resume();
        break;
      case UploadRelay::Taken::kFull:
        break;
      case UploadRelay::Taken::kGone:
        uploads_.erase(incoming_.upload());
        End({grpc::StatusCode::CANCELLED, "the reader has gone"});
        break;
    }
  }

  void OnCancel() override { End(grpc::Status::CANCELLED); }

  void OnDone() override {
    for (const std::string& upload : uploads_) {
      relay_.Finish(upload);
    }
    // Dropped, and perhaps deleted, after the lock is released.
    std::shared_ptr<UploadStream> self;
    {
      const absl::MutexLock lock(&mu_);
      finished_ = true;
      self.swap(self_);
    }
  }

 private:
  void Resume() {
    const absl::MutexLock lock(&mu_);
    if (!finished_) {
      StartRead(&incoming_);
    }
  }

  void End(const grpc::Status& status) {
    const absl::MutexLock lock(&mu_);
    if (!finished_) {
      finished_ = true;
      Finish(status);
    }
  }

  UploadRelay& relay_;
  const tls::Identity identity_;
  v1::UploadChunk incoming_;  // of the chain of reads, like uploads_
  std::set<std::string> uploads_;
  absl::Mutex mu_;
  std::shared_ptr<UploadStream> self_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

template <typename Chunk>
grpc::ServerWriteReactor<Chunk>* OpenReader(UploadRelay& relay,
                                            const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  const auto stream = std::make_shared<ReaderStream<Chunk>>(relay);
  stream->Start(stream, wanted);
  return stream.get();
}

}  // namespace

grpc::ServerWriteReactor<v1::LogChunk>* OpenLog(
    UploadRelay& relay, const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  return OpenReader<v1::LogChunk>(relay, wanted);
}

grpc::ServerWriteReactor<v1::ProfileChunk>* OpenProfile(
    UploadRelay& relay, const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  return OpenReader<v1::ProfileChunk>(relay, wanted);
}

grpc::ServerReadReactor<v1::UploadChunk>* OpenUpload(UploadRelay& relay, const tls::Identity& identity) {
  const auto stream = std::make_shared<UploadStream>(relay, identity);
  stream->Start(stream);
  return stream.get();
}

}  // namespace tandem::controller
