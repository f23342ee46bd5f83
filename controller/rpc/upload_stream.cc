// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/upload_stream.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/core/state.h"
#include "controller/rpc/owned_stream.h"
#include "controller/rpc/request_limits.h"
#include "platform/counted_text.h"
#include "proto/names.h"

namespace tandem::controller {
namespace {

constexpr int kMostProfiledSteps = 16;

UploadRelay::Wanted& AddSlot(const v1::Job& job, int attempt, const v1::RankSlot& slot,
                             std::vector<UploadRelay::Wanted>& wanted) {
  UploadRelay::Wanted& want = wanted.emplace_back();
  want.slot = slot;
  want.request.mutable_id()->set_job_id(job.id());
  want.request.mutable_id()->set_attempt(attempt);
  return want;
}

// What a reader gets of a chunk.
void Take(v1::UploadChunk& from, v1::LogChunk& to) { to = std::move(*from.mutable_chunk()); }
void Take(v1::UploadChunk& from, v1::ProfileChunk& to) { to = std::move(*from.mutable_profile()); }

template <typename Chunk>
class ReaderStream : public OwnedStream<grpc::ServerWriteReactor<Chunk>, ReaderStream<Chunk>> {
  using OwnedStream<grpc::ServerWriteReactor<Chunk>, ReaderStream<Chunk>>::mu_;
  using OwnedStream<grpc::ServerWriteReactor<Chunk>, ReaderStream<Chunk>>::finished_;

 public:
  explicit ReaderStream(UploadRelay& relay) : relay_(relay) {}

  void Start(const std::string& caller, const std::vector<UploadRelay::Wanted>& wanted) {
    this->Own();
    const absl::StatusOr<uint64_t> reader = relay_.Open(caller, wanted, [weak = this->weak_from_this()] {
      if (const std::shared_ptr<ReaderStream> stream = weak.lock()) {
        stream->Pump();
      }
    });
    {
      const absl::MutexLock lock(&mu_);
      if (!reader.ok()) {
        finished_ = true;
        this->Finish(ToRpc(reader.status()));
        return;
      }
      reader_ = *reader;
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
    const std::shared_ptr<ReaderStream> self = this->shared_from_this();
    OwnedStream<grpc::ServerWriteReactor<Chunk>, ReaderStream>::OnDone();
    std::optional<uint64_t> reader;
    {
      const absl::MutexLock lock(&mu_);
      reader = reader_;
    }
    if (reader.has_value()) {
      relay_.Close(*reader);
    }
  }

 private:
  void Pump() {
    for (const std::function<void()>& resume : WriteNext()) {
      resume();
    }
  }

  std::vector<std::function<void()>> WriteNext() {
    const absl::MutexLock lock(&mu_);
    if (writing_ || finished_ || !reader_.has_value()) {
      return {};
    }
    if (cancelled_) {
      finished_ = true;
      this->Finish(grpc::Status::CANCELLED);
      return {};
    }
    UploadRelay::Next next = relay_.Read(*reader_);
    if (next.chunk.has_value()) {
      Take(*next.chunk, outgoing_);
      writing_ = true;
      this->StartWrite(&outgoing_);
    } else if (next.end) {
      finished_ = true;
      this->Finish(ToRpc(next.status));
    }
    return std::move(next.resumes);
  }

  UploadRelay& relay_;
  Chunk outgoing_;
  std::optional<uint64_t> reader_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

class UploadStream : public OwnedStream<grpc::ServerReadReactor<v1::UploadChunk>, UploadStream> {
 public:
  UploadStream(UploadRelay& relay, tls::Identity identity) : relay_(relay), identity_(std::move(identity)) {}

  void Start() {
    Own();
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the worker has sent all, or is gone: OnDone knows
      End(grpc::Status::OK);
      return;
    }
    if (const absl::Status limits = CheckLimits(incoming_, kLimitsOfWorker); !limits.ok()) {
      End(ToRpc(limits));
      return;
    }
    {
      const absl::MutexLock lock(&mu_);
      uploads_.insert(incoming_.upload());
    }
    Deliver();
  }

  void OnCancel() override {
    cut_ = true;
    End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    std::set<std::string> uploads;
    {
      const absl::MutexLock lock(&mu_);
      uploads.swap(uploads_);
    }
    for (const std::string& upload : uploads) {
      relay_.Finish(upload, cut_);
    }
    OwnedStream::OnDone();
  }

 private:
  // Part of the chain of reads, which goes on when the relay has taken the chunk.
  void Deliver() {
    switch (relay_.Deliver(incoming_, identity_, [self = shared_from_this()] { self->Deliver(); })) {
      case UploadRelay::Taken::kOk:
        ReadNext();
        break;
      case UploadRelay::Taken::kFull:
        break;
      case UploadRelay::Taken::kGone: {
        {
          const absl::MutexLock lock(&mu_);
          uploads_.erase(incoming_.upload());
        }
        End({grpc::StatusCode::CANCELLED, "the reader has gone"});
        break;
      }
      case UploadRelay::Taken::kTooLong:
        End({grpc::StatusCode::INVALID_ARGUMENT,
             absl::StrCat("chunk.data: ", incoming_.chunk().data().size(), " bytes; allowed are at most ",
                          UploadRelay::kMostLogBytes)});
        break;
    }
  }

  void ReadNext() {
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
  v1::UploadChunk incoming_;  // used by the chain of reads alone
  std::set<std::string> uploads_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> cut_ = false;  // the connection has broken, or the worker gave up
};

template <typename Chunk>
grpc::ServerWriteReactor<Chunk>* OpenReader(UploadRelay& relay, const std::string& caller,
                                            const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  if (!wanted.ok()) {
    return RefuseCall<grpc::ServerWriteReactor<Chunk>>(wanted.status());
  }
  const auto stream = std::make_shared<ReaderStream<Chunk>>(relay);
  stream->Start(caller, *wanted);
  return stream.get();
}

}  // namespace

grpc::ServerWriteReactor<v1::LogChunk>* OpenLog(
    UploadRelay& relay, const std::string& caller,
    const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  return OpenReader<v1::LogChunk>(relay, caller, wanted);
}

grpc::ServerWriteReactor<v1::ProfileChunk>* OpenProfile(
    UploadRelay& relay, const std::string& caller,
    const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  return OpenReader<v1::ProfileChunk>(relay, caller, wanted);
}

grpc::ServerReadReactor<v1::UploadChunk>* OpenUpload(UploadRelay& relay, const tls::Identity& identity) {
  const auto stream = std::make_shared<UploadStream>(relay, identity);
  stream->Start();
  return stream.get();
}

absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedLogs(const v1::Job& job,
                                                            const v1::LogRequest& request) {
  if (request.attempt() < 0 || request.tail_lines() < 0) {
    return absl::InvalidArgumentError("attempt, tail_lines: must not be negative");
  }
  const int number = request.attempt() == 0 ? job.attempt() : request.attempt();
  std::vector<UploadRelay::Wanted> wanted;
  for (const v1::Attempt& attempt : job.attempts()) {
    if (attempt.number() != number) {
      continue;
    }
    for (const v1::RankSlot& slot : attempt.slots()) {
      if (!request.has_rank() || request.rank() == slot.rank()) {
        UploadRelay::Wanted& want = AddSlot(job, number, slot, wanted);
        want.request.set_tail_lines(request.tail_lines());
        want.request.set_follow(request.follow());
      }
    }
  }
  if (number == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.name(), " has not been placed yet: ", proto::ValueName(job.state()), ", ",
                     job.reason(), ": ", job.message()));
  }
  if (wanted.empty()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.name(), " has no ",
                     request.has_rank() ? absl::StrCat("rank ", request.rank(), " in attempt ", number)
                                        : absl::StrCat("attempt ", number),
                     "; it has ", platform::CountedText(job.attempts_size(), "attempt"), " of ",
                     platform::CountedText(job.resolved().parallelism().ranks(), "rank")));
  }
  return wanted;
}

absl::StatusOr<std::vector<UploadRelay::Wanted>> WantedProfiles(const v1::Job& job,
                                                                const v1::ProfileRequest& request,
                                                                uint64_t id) {
  if (request.steps() < 1 || request.steps() > kMostProfiledSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps: ", request.steps(), "; allowed are 1 to ", kMostProfiledSteps));
  }
  if (job.state() != v1::JOB_STATE_RUNNING || job.attempts().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.name(), " (", job.id(), ") is not running: ", proto::ValueName(job.state()),
        IsTerminal(job.state()) ? "; only a running job can be profiled" : "; try again when it runs"));
  }
  std::vector<UploadRelay::Wanted> wanted;
  const v1::Attempt& attempt = job.attempts(job.attempts_size() - 1);
  for (const v1::RankSlot& slot : attempt.slots()) {
    v1::ProfileSteps& profile = *AddSlot(job, attempt.number(), slot, wanted).request.mutable_profile();
    profile.set_id(id);
    profile.set_steps(request.steps());
    profile.set_serialized(request.serialized());
  }
  return wanted;
}

}  // namespace tandem::controller
