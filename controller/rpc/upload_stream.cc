// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/upload_stream.h"

#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/core/state.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/streams.h"
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

// Moves the part of a chunk that a reader gets.
void Take(v1::UploadChunk& from, v1::LogChunk& to) { to = std::move(*from.mutable_chunk()); }
void Take(v1::UploadChunk& from, v1::ProfileChunk& to) { to = std::move(*from.mutable_profile()); }

template <typename Chunk>
class ReaderStream : public WritingStream<grpc::ServerWriteReactor<Chunk>, Chunk, ReaderStream<Chunk>> {
  using Base = WritingStream<grpc::ServerWriteReactor<Chunk>, Chunk, ReaderStream<Chunk>>;
  using Base::end_;
  using Base::finished_;
  using Base::mu_;
  using Base::writing_;

 public:
  explicit ReaderStream(UploadRelay& relay) : relay_(relay) {}

  void Start(const std::string& caller, const std::vector<UploadRelay::Wanted>& wanted) {
    this->Own();
    const absl::StatusOr<uint64_t> reader = relay_.Open(caller, wanted, [weak = this->weak_from_this()] {
      if (const std::shared_ptr<ReaderStream> stream = weak.lock()) {
        stream->Pump();
      }
    });
    if (!reader.ok()) {
      this->End(ToRpc(reader.status()));
      return;
    }
    {
      const absl::MutexLock lock(&mu_);
      reader_ = *reader;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    Base::OnWriteDone(ok);
    Resume();
  }
  void OnCancel() override { this->End(grpc::Status::CANCELLED); }
  void OnDone() override {
    const std::shared_ptr<ReaderStream> self = this->shared_from_this();
    Base::OnDone();
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
    {
      const absl::MutexLock lock(&mu_);
      WriteNext();
    }
    Resume();
  }

  void WriteNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) {
      return;
    }
    if (!end_.has_value() && reader_.has_value()) {
      UploadRelay::Next next = relay_.Read(*reader_);
      std::move(next.resumes.begin(), next.resumes.end(), std::back_inserter(resumes_));
      if (next.chunk.has_value()) {
        Take(*next.chunk, this->outgoing_);
        this->WriteOutgoing();
      } else if (next.end) {
        end_ = ToRpc(next.status);
      }
    }
    if (end_.has_value()) {
      this->FinishWithEnd();
    }
  }

  // Lets the uploads continue. Must be called without a lock.
  void Resume() {
    std::vector<std::function<void()>> resumes;
    {
      const absl::MutexLock lock(&mu_);
      resumes.swap(resumes_);
    }
    for (const std::function<void()>& resume : resumes) {
      resume();
    }
  }

  UploadRelay& relay_;
  std::optional<uint64_t> reader_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> resumes_ ABSL_GUARDED_BY(mu_);
};

class UploadStream : public OwnedStream<grpc::ServerReadReactor<v1::UploadChunk>, UploadStream> {
 public:
  UploadStream(UploadRelay& relay, tls::Identity identity) : relay_(relay), identity_(std::move(identity)) {}

  void Start() {
    Own();
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the worker has sent all or is gone; OnDone finds out which
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
  // A step of the chain of reads, which continues when the relay has taken the chunk.
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
  v1::UploadChunk incoming_;  // used only by the chain of reads
  std::set<std::string> uploads_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> cut_ = false;  // the connection has broken, or the worker gave up
};

}  // namespace

template <typename Chunk>
grpc::ServerWriteReactor<Chunk>* OpenReader(UploadRelay& relay, const std::string& caller,
                                            const absl::StatusOr<std::vector<UploadRelay::Wanted>>& wanted) {
  if (!wanted.ok()) {
    return RefuseCall{wanted.status()};
  }
  const auto stream = std::make_shared<ReaderStream<Chunk>>(relay);
  stream->Start(caller, *wanted);
  return stream.get();
}

template grpc::ServerWriteReactor<v1::LogChunk>* OpenReader(
    UploadRelay&, const std::string&, const absl::StatusOr<std::vector<UploadRelay::Wanted>>&);
template grpc::ServerWriteReactor<v1::ProfileChunk>* OpenReader(
    UploadRelay&, const std::string&, const absl::StatusOr<std::vector<UploadRelay::Wanted>>&);

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
