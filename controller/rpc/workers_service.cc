// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/workers_service.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/streams.h"
#include "controller/rpc/upload_stream.h"
#include "platform/log.h"
#include "platform/shown_text.h"
#include "platform/status_macros.h"
#include "proto/table_digest.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr int kMostScalars = 256;               // in one report
constexpr size_t kMostScalarName = 128;         // bytes; kept with each step
constexpr size_t kMostJobId = 64;               // bytes; those that the controller makes are shorter
constexpr size_t kMostKnown = 1024;             // jobs that a stream looks up less often than it names them
constexpr size_t kMostUncommittedBatches = 64;  // beyond it, the history commits soon

// Norms name their table by its digest. A worker that chose the digest could name the norms of other jobs.
absl::Status CheckTable(const v1::ReportBatch& batch) {
  if (!batch.has_table() || proto::DigestOf(batch.table()) == batch.table().digest()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the parameter table of job ", batch.id().job_id(),
                                                 " has digest ", proto::DigestOf(batch.table()), ", and not ",
                                                 platform::Shown(batch.table().digest())));
}

// One stream of Workers.Reports. Batches of reports are added to the history, and acknowledged when they are
// durable. A batch of an attempt without a rank on the worker of `identity` is refused.
class ReportsStream : public WritingStream<grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>,
                                           v1::ReportAck, ReportsStream> {
 public:
  ReportsStream(const WorkersService::Parts& parts, tls::Identity identity)
      : parts_(parts), identity_(std::move(identity)) {}

  void Start() {
    Own();
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End(grpc::Status::OK);
      return;
    }
    if (const absl::Status status = Take(); !status.ok()) {
      End(ToRpc(status));
      return;
    }
    parts_.reports_arrived();
    const absl::MutexLock lock(&mu_);
    if (!end_.has_value()) {
      StartRead(&incoming_);
    }
  }

 private:
  // What this stream knows about a job whose reports it gets.
  struct Known {
    bool exists = false;
    absl::Time ended = absl::InfiniteFuture();
    int attempt = 0;  // the newest attempt
    std::string name;
    int64_t steps = 0;
    std::set<int> ours;  // attempts with ranks that were placed on this stream's worker
  };

  absl::Status Take() {
    TANDEM_RETURN_IF_ERROR(CheckLimits(incoming_));
    const v1::AttemptId& id = incoming_.id();
    if (id.job_id().size() > kMostJobId) {
      return absl::InvalidArgumentError(absl::StrCat("the id of a job has at most ", kMostJobId,
                                                     " bytes, and this one ", id.job_id().size()));
    }
    for (const v1::StepReport& report : incoming_.reports()) {
      if (report.attempt() != 0 && report.attempt() != id.attempt()) {
        return absl::InvalidArgumentError(absl::StrCat("step ", report.step(), " of job ", id.job_id(),
                                                       " is of attempt ", report.attempt(),
                                                       ", and its batch of attempt ", id.attempt()));
      }
      if (report.scalars_size() > kMostScalars) {
        return absl::InvalidArgumentError(absl::StrCat("step ", report.step(), " of job ", id.job_id(),
                                                       " has ", report.scalars_size(),
                                                       " scalars; allowed: ", kMostScalars));
      }
      for (const auto& [name, value] : report.scalars()) {
        if (name.size() > kMostScalarName) {
          return absl::InvalidArgumentError(absl::StrCat("step ", report.step(), " of job ", id.job_id(),
                                                         " has a scalar whose name has ", name.size(),
                                                         " bytes; allowed: ", kMostScalarName));
        }
      }
    }
    TANDEM_RETURN_IF_ERROR(CheckTable(incoming_));
    TANDEM_ASSIGN_OR_RETURN(Known job, Look(id));
    if (!job.exists || id.attempt() < 1 || id.attempt() > job.attempt) {
      // The reports are of another controller's job, or of an attempt that does not exist. They are not
      // acknowledged: that would lose them for the controller of the job, to which the worker's next stream
      // may go. A worker that is told to forget the attempt drops them itself.
      return absl::OkStatus();
    }
    if (!job.ours.contains(id.attempt())) {
      return absl::PermissionDeniedError(absl::StrCat(tls::ToText(identity_), " may not report for attempt ",
                                                      id.attempt(), " of job ", job.name, " (", id.job_id(),
                                                      "): no rank of it was placed there"));
    }
    for (const v1::StepReport& report : incoming_.reports()) {
      if (report.step() < 0 || report.step() > job.steps) {
        return absl::InvalidArgumentError(absl::StrCat("job ", job.name, " (", id.job_id(), ") has no step ",
                                                       report.step(), "; its steps are 0 to ", job.steps));
      }
    }
    for (const v1::StepReport& report : incoming_.reports()) {
      parts_.metrics.Report(id.job_id(), job.name, report, job.ended);
    }
    bool many = false;
    {
      const absl::MutexLock lock(&mu_);
      many = ++uncommitted_ >= kMostUncommittedBatches;
    }
    const absl::Status status = parts_.history.Add(
        incoming_, parts_.clock.Now(),
        [self = shared_from_this(), id, seq = incoming_.seq()](const absl::Status& committed) {
          if (committed.ok()) {
            self->Acknowledge(id, seq);
          } else {
            self->End({grpc::StatusCode::UNAVAILABLE,
                       absl::StrCat("reports were not stored, send them again: ", committed.message())});
          }
        });
    if (status.ok() && many) {
      parts_.history.CommitSoon();
    }
    return status;
  }

  absl::StatusOr<Known> Look(const v1::AttemptId& attempt) {
    const std::string& id = attempt.job_id();
    // The job is looked up again at times, to see its end, and at once for a newer attempt.
    const auto it = known_.find(id);
    if (it != known_.end() && parts_.clock.Now() - it->second.first < absl::Seconds(1) &&
        attempt.attempt() <= it->second.second.attempt) {
      return it->second.second;
    }
    const absl::StatusOr<std::optional<v1::Job>> found = parts_.store.Find(id);
    if (absl::IsUnavailable(found.status()) && it != known_.end() &&
        attempt.attempt() <= it->second.second.attempt) {
      return it->second.second;  // the store's disk stands still, so the next look-up is later
    }
    TANDEM_ASSIGN_OR_RETURN(const std::optional<v1::Job> job, found);
    Known known;
    if (job.has_value() && job->id() == id) {
      known = {.exists = true,
               .ended = job->has_ended() ? proto::FromProto(job->ended()) : absl::InfiniteFuture(),
               .attempt = job->attempt(),
               .name = job->name(),
               .steps = job->resolved().training().steps(),
               .ours = AttemptsHere(*job)};
    } else {
      platform::Log(platform::LogLevel::kWarning, "reports of a job that is not here are not taken",
                    {{"job", id}});
    }
    if (known_.size() >= kMostKnown) {
      known_.clear();  // no worker has so many jobs; each is looked up again
    }
    known_[id] = {parts_.clock.Now(), known};
    return known;
  }

  std::set<int> AttemptsHere(const v1::Job& job) const {
    std::set<int> here;
    for (const v1::Attempt& attempt : job.attempts()) {
      if (std::any_of(attempt.slots().begin(), attempt.slots().end(),
                      [&](const v1::RankSlot& slot) { return tls::MayBeWorker(identity_, slot.worker()); })) {
        here.insert(attempt.number());
      }
    }
    return here;
  }

  void Acknowledge(const v1::AttemptId& id, uint64_t seq) {
    const absl::MutexLock lock(&mu_);
    uncommitted_ = uncommitted_ > 0 ? uncommitted_ - 1 : 0;
    v1::ReportAck& ack = acks_[KeyOf(id)];
    *ack.mutable_id() = id;
    ack.set_seq(std::max(ack.seq(), seq));
    WriteNext();
  }

  void WriteNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) {
      return;
    }
    if (end_.has_value()) {
      FinishWithEnd();
    } else if (!acks_.empty()) {
      outgoing_ = std::move(acks_.begin()->second);
      acks_.erase(acks_.begin());
      WriteOutgoing();
    }
  }

  const WorkersService::Parts parts_;
  const tls::Identity identity_;  // the worker's identity
  v1::ReportBatch incoming_;      // used by the chain of reads, like known_
  std::map<std::string, std::pair<absl::Time, Known>> known_;

  std::map<AttemptKey, v1::ReportAck> acks_ ABSL_GUARDED_BY(mu_);
  size_t uncommitted_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* WorkersService::Session(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Session", nullptr);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  return parts_.sessions.Open(parts_.engine, *caller);
}

grpc::ServerBidiReactor<v1::ReportBatch, v1::ReportAck>* WorkersService::Reports(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Reports", nullptr);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  const auto stream = std::make_shared<ReportsStream>(parts_, caller->identity);
  stream->Start();
  return stream.get();
}

grpc::ServerReadReactor<v1::UploadChunk>* WorkersService::Upload(grpc::CallbackServerContext* context,
                                                                 v1::UploadDone* /*response*/) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Workers.Upload", nullptr);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  return OpenUpload(parts_.uploads, caller->identity);
}

}  // namespace tandem::controller
