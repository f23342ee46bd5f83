// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/jobs_service.h"

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/core/group_list.h"
#include "controller/core/last_step.h"
#include "controller/core/time_account.h"
#include "controller/rpc/refused_call.h"
#include "controller/rpc/request_limits.h"
#include "controller/rpc/rpc_errors.h"
#include "controller/rpc/upload_stream.h"
#include "jobspec/jobspec.h"
#include "platform/build_info.h"
#include "platform/log.h"
#include "proto/names.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr size_t kPageBytes = size_t{3} << 20;  // clients take messages of 4 MiB
constexpr size_t kMostRequestId = 128;
constexpr int kMostProfiledSteps = 16;
constexpr int kMostPoints = 2000;

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToRpc(status));
  return reactor;
}

absl::StatusOr<int> PageSize(int asked) {
  if (asked < 0) {
    return absl::InvalidArgumentError("page_size: must not be negative; 0 means 100");
  }
  return asked == 0 ? 100 : std::min(asked, 1000);
}

absl::StatusOr<int64_t> NumberToken(const std::string& token) {
  int64_t out = 0;
  if (!token.empty() && (!absl::SimpleAtoi(token, &out) || out <= 0)) {
    return absl::InvalidArgumentError("page_token: not one that this service gave");
  }
  return out;
}

// The states to list; none: all.
absl::StatusOr<std::set<v1::JobState>> StatesOf(const v1::ListJobsRequest& request) {
  std::set<v1::JobState> out;
  for (const int state : request.states()) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) {
      std::vector<std::string> known;
      for (int i = v1::JOB_STATE_UNSPECIFIED + 1; i <= v1::JobState_MAX; ++i) {
        known.push_back(v1::JobState_Name(static_cast<v1::JobState>(i)));
      }
      return absl::InvalidArgumentError(
          absl::StrCat("states: the number ", state, " is not a state that this version knows; allowed: ",
                       absl::StrJoin(known, ", "), "; use a client of the same version"));
    }
    out.insert(static_cast<v1::JobState>(state));
  }
  return out;
}

// The violations of a spec as submitted; where there are none, what it resolves to.
std::vector<v1::Violation> Check(const v1::JobSpec& spec, v1::JobSpec& resolved) {
  std::vector<v1::Violation> violations = jobspec::Validate(spec);
  if (!violations.empty()) {
    return violations;
  }
  resolved = jobspec::Resolve(spec);
  return violations;
}

// ListJobsRequest.brief.
void Shorten(v1::Job& job) {
  job.clear_submitted();
  v1::JobSpec brief;
  brief.mutable_training()->set_steps(job.resolved().training().steps());
  brief.mutable_parallelism()->set_ranks(job.resolved().parallelism().ranks());
  brief.mutable_checkpoint()->set_directory(job.resolved().checkpoint().directory());
  *job.mutable_resolved() = std::move(brief);
  for (v1::Attempt& attempt : *job.mutable_attempts()) {
    if (attempt.has_ended()) {
      attempt.clear_slots();
    }
  }
}

// Of the norms, what was asked for.
void Select(const v1::ListReportsRequest& request, v1::Norms& norms) {
  const auto keep = [&](v1::NormKind kind, google::protobuf::RepeatedField<double>& list) {
    const int index = request.parameter() - 1;
    if (request.kind() != v1::NORM_KIND_UNSPECIFIED && request.kind() != kind) {
      list.Clear();
    } else if (index >= 0) {
      const std::vector<double> one(index < list.size() ? 1 : 0, index < list.size() ? list.Get(index) : 0);
      list.Assign(one.begin(), one.end());
    }
  };
  keep(v1::NORM_KIND_WEIGHT, *norms.mutable_weight());
  keep(v1::NORM_KIND_GRADIENT, *norms.mutable_gradient());
  keep(v1::NORM_KIND_UPDATE, *norms.mutable_update());
  if (request.kind() != v1::NORM_KIND_UNSPECIFIED) {
    norms.clear_rms();
    norms.clear_max_abs();
    norms.clear_gradient_max_abs();
    norms.clear_update_max_abs();
  } else {
    keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_rms());
    keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_max_abs());
    keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_gradient_max_abs());
    keep(v1::NORM_KIND_UNSPECIFIED, *norms.mutable_update_max_abs());
  }
}

bool CamelCase(const std::string& reason) {
  return reason.size() <= 64 && std::all_of(reason.begin(), reason.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

}  // namespace

grpc::ServerUnaryReactor* JobsService::Submit(grpc::CallbackServerContext* context,
                                              const v1::SubmitRequest* request, v1::Job* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Submit", nullptr);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (request->request_id().size() > kMostRequestId) {
    reactor->Finish(
        {grpc::StatusCode::INVALID_ARGUMENT,
         absl::StrCat("request_id: ", request->request_id().size(), " bytes; at most ", kMostRequestId)});
    return reactor;
  }
  controller::Submit submit;
  const std::vector<v1::Violation> violations = Check(request->spec(), submit.resolved);
  if (!violations.empty()) {
    reactor->Finish(InvalidSpec(violations));
    return reactor;
  }
  // Behind the check of the spec, which says of most fields what they may be.
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) {
    reactor->Finish(ToRpc(limits));
    return reactor;
  }
  submit.id = parts_.random.HexId(12);
  submit.owner = caller->identity.name;
  submit.request_id = request->request_id();
  submit.submitted = request->spec();
  submit.resolved_digest = jobspec::Digest(submit.resolved);
  parts_.engine.Post(std::move(submit), [reactor, response](Engine::Reply reply) {
    *response = std::move(reply.job);
    reactor->Finish(ToRpc(reply.status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Validate(grpc::CallbackServerContext* context,
                                                const v1::SubmitRequest* request,
                                                v1::ValidateResponse* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Validate", nullptr);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  v1::JobSpec resolved;
  const std::vector<v1::Violation> violations = Check(request->spec(), resolved);
  response->mutable_violations()->Assign(violations.begin(), violations.end());
  if (violations.empty()) {
    *response->mutable_resolved() = std::move(resolved);
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobsService::GetJob(grpc::CallbackServerContext* context,
                                              const v1::GetJobRequest* request, v1::Job* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.GetJob", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
  if (!job.ok()) {
    return Reply(context, job.status());
  }
  *response = *std::move(job);
  parts_.progress.Fill(*response);
  if (const auto groups = GroupsOf(response->resolved());
      groups.ok()) {  // another version's spec may not fit
    response->mutable_groups()->Assign(groups->begin(), groups->end());
  }
  if (const absl::Status status = FillLastStep(parts_.history, *response); !status.ok()) {
    return Reply(context, status);
  }
  const absl::StatusOr<StepTotals> totals = parts_.history.Totals(response->id());
  if (totals.ok()) {  // a damaged history costs the account alone
    *response->mutable_time() = AccountTime(*response, *totals, parts_.clock.Now());
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobsService::ListJobs(grpc::CallbackServerContext* context,
                                                const v1::ListJobsRequest* request,
                                                v1::ListJobsResponse* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.ListJobs", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  const absl::StatusOr<int> size = PageSize(request->page_size());
  const absl::StatusOr<int64_t> before = NumberToken(request->page_token());
  if (!size.ok() || !before.ok()) {
    return Reply(context, size.ok() ? before.status() : size.status());
  }
  const absl::StatusOr<std::set<v1::JobState>> states = StatesOf(*request);
  if (!states.ok()) {
    return Reply(context, states.status());
  }
  absl::StatusOr<std::vector<std::pair<int64_t, v1::Job>>> jobs =
      parts_.store.List(*before, *size + 1, *states);
  if (!jobs.ok()) {
    return Reply(context, jobs.status());
  }
  size_t bytes = 0;
  for (size_t i = 0; i < jobs->size(); ++i) {
    auto& [seq, job] = (*jobs)[i];
    if (request->brief()) {
      Shorten(job);
    }
    bytes += job.ByteSizeLong();
    if (response->jobs_size() == *size || (i > 0 && bytes > kPageBytes)) {
      response->set_next_page_token(absl::StrCat((*jobs)[i - 1].first));
      break;
    }
    if (const absl::Status status = FillLastStep(parts_.history, job); !status.ok()) {
      return Reply(context, status);
    }
    parts_.progress.Fill(job);
    *response->add_jobs() = std::move(job);
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobsService::ListWorkers(grpc::CallbackServerContext* context,
                                                   const v1::ListWorkersRequest* request,
                                                   v1::ListWorkersResponse* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.ListWorkers", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  const absl::StatusOr<int> size = PageSize(request->page_size());
  if (!size.ok()) {
    return Reply(context, size.status());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto look = [this, reactor, response, after = request->page_token(),
                     size = *size](const State& state) {
    for (auto it = state.workers.upper_bound(after); it != state.workers.end(); ++it) {
      if (response->workers_size() == size) {
        response->set_next_page_token(response->workers(size - 1).id());
        break;
      }
      v1::Worker& worker = *response->add_workers();
      worker = Describe(state, it->first);
      *worker.mutable_last_seen() = proto::ToProto(
          it->second.connected ? std::max(it->second.since, parts_.sessions.LastSeen(it->first))
                               : it->second.since);
    }
    reactor->Finish(grpc::Status::OK);
  };
  if (!parts_.engine.Query(look)) {
    reactor->Finish({grpc::StatusCode::UNAVAILABLE, "the controller is shutting down"});
  }
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::ListEvents(grpc::CallbackServerContext* context,
                                                  const v1::ListEventsRequest* request,
                                                  v1::ListEventsResponse* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.ListEvents", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  const absl::StatusOr<int> size = PageSize(request->page_size());
  const absl::StatusOr<int64_t> after = NumberToken(request->page_token());
  if (!size.ok() || !after.ok()) {
    return Reply(context, size.ok() ? after.status() : size.status());
  }
  if (request->after_seq() < 0) {
    return Reply(context, absl::InvalidArgumentError("after_seq: must not be negative"));
  }
  std::string job_id;
  if (!request->job().empty()) {
    const absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
    if (!job.ok()) {
      return Reply(context, job.status());
    }
    job_id = job->id();
  }
  absl::StatusOr<std::vector<v1::Event>> events =
      parts_.store.Events(job_id, std::max(*after, request->after_seq()), *size + 1);
  if (!events.ok()) {
    return Reply(context, events.status());
  }
  size_t bytes = 0;
  for (v1::Event& event : *events) {
    bytes += event.ByteSizeLong();
    const int count = response->events_size();
    if (count == *size || (count > 0 && bytes > kPageBytes)) {
      response->set_next_page_token(absl::StrCat(response->events(count - 1).seq()));
      break;
    }
    *response->add_events() = std::move(event);
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* context,
                                              const v1::CancelRequest* request, v1::Job* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Cancel", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  if (!CamelCase(request->reason())) {
    return Reply(context, absl::InvalidArgumentError(
                              "reason: at most 64 letters and digits, as in \"ClusterStopped\""));
  }
  const auto already_ended = [response](const v1::Job& job) {
    if (job.state() == v1::JOB_STATE_CANCELLED) {
      *response = job;
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.name(), " (", job.id(), ") has ended: ", proto::ValueName(job.state())));
  };
  const absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
  if (!job.ok()) {
    return Reply(context, job.status());
  }
  if (const absl::Status owner = Access::CheckOwner(*caller, "tandem.v1.Jobs.Cancel", *job); !owner.ok()) {
    return Reply(context, owner);
  }
  if (IsTerminal(job->state())) {
    return Reply(context, already_ended(*job));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  controller::Cancel cancel{.job = job->id(),
                            .reason = request->reason().empty() ? "CancelledByUser" : request->reason(),
                            .actor = tls::ToText(caller->identity),
                            .checkpoint = request->checkpoint()};
  parts_.engine.Post(std::move(cancel),
                     [this, reactor, response, already_ended, id = job->id()](Engine::Reply reply) {
                       if (absl::IsNotFound(reply.status)) {  // it ended meanwhile
                         const absl::StatusOr<v1::Job> ended = parts_.store.Lookup(id);
                         reactor->Finish(ToRpc(ended.ok() ? already_ended(*ended) : ended.status()));
                         return;
                       }
                       *response = std::move(reply.job);
                       reactor->Finish(ToRpc(reply.status));
                     });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Checkpoint(grpc::CallbackServerContext* context,
                                                  const v1::CheckpointRequest* request, v1::Job* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Checkpoint", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  const absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
  if (!job.ok()) {
    return Reply(context, job.status());
  }
  if (const absl::Status owner = Access::CheckOwner(*caller, "tandem.v1.Jobs.Checkpoint", *job);
      !owner.ok()) {
    return Reply(context, owner);
  }
  const auto has_ended = [](const v1::Job& ended) {
    return absl::FailedPreconditionError(absl::StrCat("job ", ended.name(), " (", ended.id(),
                                                      ") has ended: ", proto::ValueName(ended.state())));
  };
  if (IsTerminal(job->state())) {
    return Reply(context, has_ended(*job));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  parts_.engine.Post(AskCheckpoint{.job = job->id(), .actor = tls::ToText(caller->identity)},
                     [this, reactor, response, has_ended, id = job->id()](Engine::Reply reply) {
                       if (absl::IsNotFound(reply.status)) {  // it ended meanwhile
                         const absl::StatusOr<v1::Job> ended = parts_.store.Lookup(id);
                         reactor->Finish(ToRpc(ended.ok() ? has_ended(*ended) : ended.status()));
                         return;
                       }
                       *response = std::move(reply.job);
                       reactor->Finish(ToRpc(reply.status));
                     });
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchResponse>* JobsService::Watch(grpc::CallbackServerContext* context,
                                                                const v1::WatchRequest* request) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Watch", request);
  if (!caller.ok()) {
    return RefuseCall<grpc::ServerWriteReactor<v1::WatchResponse>>(caller.status());
  }
  return parts_.watches.Open(*request);
}

grpc::ServerUnaryReactor* JobsService::ListReports(grpc::CallbackServerContext* context,
                                                   const v1::ListReportsRequest* request,
                                                   v1::ListReportsResponse* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.ListReports", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  const absl::StatusOr<int> size = PageSize(request->page_size());
  const absl::StatusOr<int64_t> after = NumberToken(request->page_token());
  if (!size.ok() || !after.ok()) {
    return Reply(context, size.ok() ? after.status() : size.status());
  }
  if (request->first_step() < 0 || request->last_step() < 0) {
    return Reply(context, absl::InvalidArgumentError("first_step, last_step: must not be negative"));
  }
  if (request->points() < 0 || request->points() == 1 || request->points() > kMostPoints ||
      request->parameter() < 0) {
    return Reply(context,
                 absl::InvalidArgumentError(absl::StrCat("points: 0 or 2 to ", kMostPoints,
                                                         "; parameter: 0 or a number in the table, from 1")));
  }
  if (request->points() > 0 && !request->page_token().empty()) {
    return Reply(context, absl::InvalidArgumentError(
                              "points: they come on one page; ask for fewer, without page_token"));
  }
  const absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
  if (!job.ok()) {
    return Reply(context, job.status());
  }
  // Norms are large: as many reports as fit in a message are read at a time.
  const int limit = request->points() > 0 ? request->points() + 1
                    : request->norms()    ? std::min(*size, 32)
                                          : *size;
  absl::StatusOr<std::vector<v1::StepReport>> reports =
      request->points() > 0 ? parts_.history.Spread(job->id(), request->first_step(), request->last_step(),
                                                    request->points(), request->norms())
                            : parts_.history.Range(job->id(), std::max(request->first_step(), *after + 1),
                                                   request->last_step(), limit + 1, request->norms());
  if (!reports.ok()) {
    return Reply(context, reports.status());
  }
  size_t bytes = 0;
  std::string digest;
  for (v1::StepReport& report : *reports) {
    if (report.has_norms()) {
      Select(*request, *report.mutable_norms());
    }
    bytes += report.ByteSizeLong();
    const int count = response->reports_size();
    // The norms of one page are of one table.
    const bool other_table = report.has_norms() && !digest.empty() && report.norms().table_digest() != digest;
    if (count == limit || (count > 0 && bytes > kPageBytes) || other_table) {
      if (request->points() > 0) {
        break;  // what comes after has no page
      }
      response->set_next_page_token(absl::StrCat(response->reports(count - 1).step()));
      break;
    }
    if (report.has_norms()) {
      digest = report.norms().table_digest();
    }
    *response->add_reports() = std::move(report);
  }
  if (!digest.empty()) {
    absl::StatusOr<std::optional<v1::ParameterTable>> table = parts_.history.Table(digest);
    if (!table.ok()) {
      return Reply(context, table.status());
    }
    if (table->has_value()) {
      *response->mutable_table() = **std::move(table);
    }
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::LogChunk>* JobsService::ReadLog(grpc::CallbackServerContext* context,
                                                             const v1::LogRequest* request) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.ReadLog", request);
  if (!caller.ok()) {
    return RefuseCall<grpc::ServerWriteReactor<v1::LogChunk>>(caller.status());
  }
  const absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
  if (!job.ok()) {
    return OpenLog(parts_.uploads, job.status());
  }
  if (const absl::Status owner = Access::CheckOwner(*caller, "tandem.v1.Jobs.ReadLog", *job); !owner.ok()) {
    return OpenLog(parts_.uploads, owner);
  }
  if (request->attempt() < 0 || request->tail_lines() < 0) {
    return OpenLog(parts_.uploads, absl::InvalidArgumentError("attempt, tail_lines: must not be negative"));
  }
  const int number = request->attempt() == 0 ? job->attempt() : request->attempt();
  std::vector<UploadRelay::Wanted> wanted;
  for (const v1::Attempt& attempt : job->attempts()) {
    if (attempt.number() != number) {
      continue;
    }
    for (const v1::RankSlot& slot : attempt.slots()) {
      if (!request->has_rank() || request->rank() == slot.rank()) {
        UploadRelay::Wanted& want = wanted.emplace_back();
        want.slot = slot;
        want.request.mutable_id()->set_job_id(job->id());
        want.request.mutable_id()->set_attempt(number);
        want.request.set_tail_lines(request->tail_lines());
        want.request.set_follow(request->follow());
      }
    }
  }
  if (number == 0) {
    return OpenLog(parts_.uploads,
                   absl::FailedPreconditionError(absl::StrCat(
                       "job ", job->name(), " has not been placed yet: ", proto::ValueName(job->state()),
                       ", ", job->reason(), ": ", job->message())));
  }
  if (wanted.empty()) {
    return OpenLog(
        parts_.uploads,
        absl::NotFoundError(absl::StrCat(
            "job ", job->name(), " has no ",
            request->has_rank() ? absl::StrCat("rank ", request->rank(), " in attempt ", number)
                                : absl::StrCat("attempt ", number),
            "; it has ", job->attempts_size(), job->attempts_size() == 1 ? " attempt of " : " attempts of ",
            job->resolved().parallelism().ranks(),
            job->resolved().parallelism().ranks() == 1 ? " rank" : " ranks")));
  }
  return OpenLog(parts_.uploads, wanted);
}

grpc::ServerWriteReactor<v1::ProfileChunk>* JobsService::Profile(grpc::CallbackServerContext* context,
                                                                 const v1::ProfileRequest* request) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Profile", request);
  if (!caller.ok()) {
    return RefuseCall<grpc::ServerWriteReactor<v1::ProfileChunk>>(caller.status());
  }
  const absl::StatusOr<v1::Job> job = parts_.store.Lookup(request->job());
  if (!job.ok()) {
    return OpenProfile(parts_.uploads, job.status());
  }
  if (const absl::Status owner = Access::CheckOwner(*caller, "tandem.v1.Jobs.Profile", *job); !owner.ok()) {
    return OpenProfile(parts_.uploads, owner);
  }
  if (request->steps() < 1 || request->steps() > kMostProfiledSteps) {
    return OpenProfile(parts_.uploads,
                       absl::InvalidArgumentError(absl::StrCat("steps: ", request->steps(),
                                                               "; allowed are 1 to ", kMostProfiledSteps)));
  }
  if (job->state() != v1::JOB_STATE_RUNNING || job->attempts().empty()) {
    return OpenProfile(
        parts_.uploads,
        absl::FailedPreconditionError(absl::StrCat(
            "job ", job->name(), " (", job->id(), ") is not running: ", proto::ValueName(job->state()),
            IsTerminal(job->state()) ? "; only a running job can be profiled" : "; try again when it runs")));
  }
  // Below 2^46, so that ranks can agree on it as a part of a double; 0 means none.
  const uint64_t id = (parts_.random.Next64() >> 18) | 1;
  std::vector<UploadRelay::Wanted> wanted;
  const v1::Attempt& attempt = job->attempts(job->attempts_size() - 1);
  for (const v1::RankSlot& slot : attempt.slots()) {
    UploadRelay::Wanted& want = wanted.emplace_back();
    want.slot = slot;
    want.request.mutable_id()->set_job_id(job->id());
    want.request.mutable_id()->set_attempt(attempt.number());
    want.request.mutable_profile()->set_id(id);
    want.request.mutable_profile()->set_steps(request->steps());
    want.request.mutable_profile()->set_serialized(request->serialized());
  }
  return OpenProfile(parts_.uploads, wanted);
}

grpc::ServerUnaryReactor* JobsService::GetServerInfo(grpc::CallbackServerContext* context,
                                                     const v1::GetServerInfoRequest* request,
                                                     v1::ServerInfo* response) {
  const absl::StatusOr<Caller> caller =
      parts_.access.Admit(*context, "tandem.v1.Jobs.GetServerInfo", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  response->set_build(platform::BuildVersion());
  response->set_store_id(parts_.store.store_id());
  response->set_term(parts_.store.term());
  *response->mutable_now() = proto::ToProto(parts_.clock.Now());
  if (!caller->is_page) {
    response->set_caller(tls::ToText(caller->identity));
  }
  return Reply(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobsService::SignIn(grpc::CallbackServerContext* context,
                                              const v1::SignInRequest* request,
                                              v1::SignInResponse* response) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.SignIn", request);
  if (!caller.ok()) {
    return Reply(context, caller.status());
  }
  absl::StatusOr<SignIns::Code> code = parts_.sign_ins.Issue(*caller);
  if (!code.ok()) {
    return Reply(context, code.status());
  }
  response->set_code(std::move(code->secret));
  response->set_page(std::move(code->page));
  response->set_caller(tls::ToText(caller->identity));
  *response->mutable_code_life() = proto::ToProto(SignIns::kCodeLife);
  return Reply(context, absl::OkStatus());
}

}  // namespace tandem::controller
