// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/jobs_service.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "controller/core/assignments.h"
#include "controller/core/progress.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/list_pages.h"
#include "controller/rpc/rpc_errors.h"
#include "controller/rpc/streams.h"
#include "controller/rpc/upload_stream.h"
#include "jobspec/jobspec.h"
#include "plan/prefetch_choice.h"
#include "platform/build_info.h"
#include "platform/status_macros.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr size_t kMostRequestId = 128;

bool CamelCase(const std::string& reason) {
  return reason.size() <= 64 && std::all_of(reason.begin(), reason.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

absl::Status HasEnded(const v1::Job& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.name(), " (", job.id(), ") has ended: ", proto::ValueName(job.state())));
}

// Checks a request's spec or text. Sets `submitted` to the spec.
jobspec::Checked CheckSpec(const v1::SubmitRequest& request, v1::JobSpec& submitted) {
  if (request.text().empty()) {
    submitted = request.spec();
  } else {
    jobspec::ReadResult read = jobspec::ReadText(request.text(), "");
    if (!read.violations.empty()) {
      return {.resolved = {}, .violations = std::move(read.violations)};
    }
    submitted = std::move(read.spec);
  }
  return jobspec::Check(submitted);
}

// A call that has been admitted.
struct Call {
  std::string_view method;
  Caller caller;
  UnaryCall* reactor;
};

// Calls `handle` if the caller is admitted. `handle` returns the status to reply, or nullopt after it has
// arranged for call.reactor->Finish.
UnaryCall* Answer(Access& access, CallContext* context, std::string_view method,
                  const google::protobuf::Message* request,
                  const std::function<std::optional<absl::Status>(const Call&)>& handle) {
  UnaryCall* reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = access.Admit(*context, method, request);
  const std::optional<absl::Status> reply =
      caller.ok() ? handle({.method = method, .caller = *caller, .reactor = reactor}) : caller.status();
  if (reply.has_value()) {
    reactor->Finish(ToRpc(*reply));
  }
  return reactor;
}

// Returns the job if the caller may make this call about it.
absl::StatusOr<v1::Job> FindOwnJob(Store& store, const std::string& name, std::string_view method,
                                   const Caller& caller) {
  absl::StatusOr<v1::Job> job = store.Lookup(name);
  if (job.ok()) {
    TANDEM_RETURN_IF_ERROR(Access::CheckOwner(caller, method, *job));
  }
  return job;
}

// Posts a change of a live job, and replies with the job. If the job has ended, replies with ended(job).
std::optional<absl::Status> Change(const Call& call, Engine& engine, Store& store, const v1::Job& job,
                                   Input change, v1::Job* response,
                                   const std::function<absl::Status(const v1::Job&)>& ended) {
  if (IsTerminal(job.state())) {
    return ended(job);
  }
  engine.Post(std::move(change),
              [&store, ended, response, reactor = call.reactor, id = job.id()](Engine::Reply reply) {
                if (absl::IsNotFound(reply.status)) {  // it ended meanwhile
                  const absl::StatusOr<v1::Job> now = store.Lookup(id);
                  reactor->Finish(ToRpc(now.ok() ? ended(*now) : now.status()));
                  return;
                }
                *response = std::move(reply.job);
                reactor->Finish(ToRpc(reply.status));
              });
  return std::nullopt;
}

// Returns how many of the steps up to the report's changed no weight.
int64_t SkippedSteps(const v1::StepReport& report) {
  const auto found = report.scalars().find("skipped_steps");
  const bool is_number = found != report.scalars().end() && found->second >= 0 &&
                         found->second <= static_cast<double>(report.step());
  return is_number ? static_cast<int64_t>(found->second) : 0;  // the number comes from a worker
}

}  // namespace

JobsService::JobsService(const Parts& parts) : parts_(parts), planner_(plan::ResolvePrefetch) {}

void JobsService::PostSubmit(controller::Submit submit, UnaryCall* reactor, v1::Job* response) {
  submit.resolved_digest = jobspec::Digest(submit.resolved);
  parts_.engine.Post(std::move(submit), [reactor, response](Engine::Reply reply) {
    *response = std::move(reply.job);
    reactor->Finish(ToRpc(reply.status));
  });
}

UnaryCall* JobsService::Submit(CallContext* context, const v1::SubmitRequest* request, v1::Job* response) {
  // The spec is checked before the limits of strings and lists, because its check names the values that most
  // fields may have. The text of a job is limited by its reader.
  return Answer(
      parts_.access, context, "tandem.v1.Jobs.Submit", /*request=*/nullptr,
      [&](const Call& call) -> std::optional<absl::Status> {
        if (request->request_id().size() > kMostRequestId) {
          return absl::InvalidArgumentError(
              absl::StrCat("request_id: ", request->request_id().size(), " bytes; at most ", kMostRequestId));
        }
        controller::Submit submit;
        jobspec::Checked checked = CheckSpec(*request, submit.submitted);
        if (!checked.violations.empty()) {
          call.reactor->Finish(InvalidSpec(checked.violations));
          return std::nullopt;
        }
        TANDEM_RETURN_IF_ERROR(CheckLimits(submit.submitted));
        submit.id = parts_.random.HexId(12);
        submit.owner = Access::OwnerOf(call.caller.identity);
        submit.request_id = request->request_id();
        submit.resolved = std::move(checked.resolved);
        if (!plan::ChoosesPrefetch(submit.resolved)) {
          PostSubmit(std::move(submit), call.reactor, response);
          return std::nullopt;
        }
        const auto look = [this, submit, response, context, reactor = call.reactor](const State& state) {
          if (state.jobs.FindRequest(submit.owner, submit.request_id) != nullptr) {  // it is chosen already
            PostSubmit(submit, reactor, response);
            return;
          }
          const auto done = [this, submit, response, context, reactor](absl::Status status,
                                                                       v1::JobSpec resolved) mutable {
            // No job is submitted for a caller that has got an error meanwhile.
            if (status.ok() && context->IsCancelled()) {
              status = absl::CancelledError("the caller has gone");
            }
            if (!status.ok()) {
              reactor->Finish(ToRpc(status));
              return;
            }
            submit.resolved = std::move(resolved);
            PostSubmit(std::move(submit), reactor, response);
          };
          if (const absl::Status posted = planner_.Post(submit.resolved, done); !posted.ok()) {
            reactor->Finish(ToRpc(posted));
          }
        };
        if (!parts_.engine.Query(look)) {
          return absl::UnavailableError("the controller is shutting down");
        }
        return std::nullopt;
      });
}

UnaryCall* JobsService::Validate(CallContext* context, const v1::SubmitRequest* request,
                                 v1::ValidateResponse* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.Validate", /*request=*/nullptr,
                [&](const Call&) -> absl::Status {
                  v1::JobSpec submitted;
                  jobspec::Checked checked = CheckSpec(*request, submitted);
                  response->mutable_violations()->Assign(checked.violations.begin(),
                                                         checked.violations.end());
                  if (checked.violations.empty()) {
                    TANDEM_RETURN_IF_ERROR(CheckLimits(submitted));
                    *response->mutable_resolved() = std::move(checked.resolved);
                  }
                  return absl::OkStatus();
                });
}

UnaryCall* JobsService::GetJob(CallContext* context, const v1::GetJobRequest* request, v1::Job* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.GetJob", request, [&](const Call&) {
    TANDEM_ASSIGN_OR_RETURN(*response, parts_.store.Lookup(request->job()));
    parts_.progress.Fill(*response);
    if (const auto groups = GroupsOf(response->resolved());
        groups.ok()) {  // another version's spec may not fit
      response->mutable_groups()->Assign(groups->begin(), groups->end());
    }
    TANDEM_RETURN_IF_ERROR(FillLastStep(parts_.history, *response));
    const absl::StatusOr<std::optional<v1::StepReport>> newest =
        parts_.history.Newest(response->id(), {}, /*norms=*/false);
    if (newest.ok() && newest->has_value()) {
      response->set_skipped_steps(SkippedSteps(**newest));
    }
    const absl::StatusOr<StepTotals> totals = parts_.history.Totals(response->id());
    if (totals.ok()) {  // if the history is damaged, only the account of time is missing
      *response->mutable_time() = AccountTime(*response, *totals, parts_.clock.Now());
    }
    return absl::OkStatus();
  });
}

UnaryCall* JobsService::ListJobs(CallContext* context, const v1::ListJobsRequest* request,
                                 v1::ListJobsResponse* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.ListJobs", request, [&](const Call&) {
    return controller::ListJobs(*request, parts_.store, parts_.history, parts_.progress, *response);
  });
}

UnaryCall* JobsService::ListWorkers(CallContext* context, const v1::ListWorkersRequest* request,
                                    v1::ListWorkersResponse* response) {
  return Answer(
      parts_.access, context, "tandem.v1.Jobs.ListWorkers", request,
      [&](const Call& call) -> std::optional<absl::Status> {
        const auto look = [this, request, response, reactor = call.reactor](const State& state) {
          reactor->Finish(ToRpc(controller::ListWorkers(*request, state, parts_.sessions, *response)));
        };
        if (!parts_.engine.Query(look)) {
          return absl::UnavailableError("the controller is shutting down");
        }
        return std::nullopt;
      });
}

UnaryCall* JobsService::ListEvents(CallContext* context, const v1::ListEventsRequest* request,
                                   v1::ListEventsResponse* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.ListEvents", request,
                [&](const Call&) { return controller::ListEvents(*request, parts_.store, *response); });
}

UnaryCall* JobsService::Cancel(CallContext* context, const v1::CancelRequest* request, v1::Job* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.Cancel", request,
                [&](const Call& call) -> std::optional<absl::Status> {
                  if (!CamelCase(request->reason())) {
                    return absl::InvalidArgumentError(
                        "reason: at most 64 letters and digits, as in \"ClusterStopped\"");
                  }
                  TANDEM_ASSIGN_OR_RETURN(const v1::Job job,
                                          FindOwnJob(parts_.store, request->job(), call.method, call.caller));
                  controller::Cancel cancel{.job = job.id(),
                                            .reason = request->reason().empty()
                                                          ? proto::ReasonCode("CancelledByUser")
                                                          : request->reason(),
                                            .actor = tls::ToText(call.caller.identity),
                                            .checkpoint = request->checkpoint()};
                  return Change(call, parts_.engine, parts_.store, job, std::move(cancel), response,
                                [response](const v1::Job& ended) {
                                  if (ended.state() != v1::JOB_STATE_CANCELLED) {
                                    return HasEnded(ended);
                                  }
                                  *response = ended;
                                  return absl::OkStatus();
                                });
                });
}

UnaryCall* JobsService::Checkpoint(CallContext* context, const v1::CheckpointRequest* request,
                                   v1::Job* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.Checkpoint", request,
                [&](const Call& call) -> std::optional<absl::Status> {
                  TANDEM_ASSIGN_OR_RETURN(const v1::Job job,
                                          FindOwnJob(parts_.store, request->job(), call.method, call.caller));
                  return Change(call, parts_.engine, parts_.store, job,
                                AskCheckpoint{.job = job.id(), .actor = tls::ToText(call.caller.identity)},
                                response, HasEnded);
                });
}

grpc::ServerWriteReactor<v1::WatchResponse>* JobsService::Watch(CallContext* context,
                                                                const v1::WatchRequest* request) {
  const absl::StatusOr<Caller> caller = parts_.access.Admit(*context, "tandem.v1.Jobs.Watch", request);
  if (!caller.ok()) {
    return RefuseCall{caller.status()};
  }
  return parts_.watches.Open(*request);
}

UnaryCall* JobsService::ListReports(CallContext* context, const v1::ListReportsRequest* request,
                                    v1::ListReportsResponse* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.ListReports", request, [&](const Call&) {
    return controller::ListReports(*request, parts_.store, parts_.history, *response);
  });
}

grpc::ServerWriteReactor<v1::LogChunk>* JobsService::ReadLog(CallContext* context,
                                                             const v1::LogRequest* request) {
  const absl::StatusOr<OwnJob> own = AdmitOwner(*context, "tandem.v1.Jobs.ReadLog", *request, request->job());
  if (!own.ok()) {
    return RefuseCall{own.status()};
  }
  return OpenReader<v1::LogChunk>(parts_.uploads, own->caller, WantedLogs(own->job, *request));
}

grpc::ServerWriteReactor<v1::ProfileChunk>* JobsService::Profile(CallContext* context,
                                                                 const v1::ProfileRequest* request) {
  const absl::StatusOr<OwnJob> own = AdmitOwner(*context, "tandem.v1.Jobs.Profile", *request, request->job());
  if (!own.ok()) {
    return RefuseCall{own.status()};
  }
  const uint64_t id = (parts_.random.Next64() >> 18) | 1;
  return OpenReader<v1::ProfileChunk>(parts_.uploads, own->caller, WantedProfiles(own->job, *request, id));
}

UnaryCall* JobsService::GetServerInfo(CallContext* context, const v1::GetServerInfoRequest* request,
                                      v1::ServerInfo* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.GetServerInfo", request, [&](const Call& call) {
    response->set_build(platform::BuildVersion());
    response->set_store_id(parts_.store.store_id());
    response->set_term(parts_.store.term());
    *response->mutable_now() = proto::ToProto(parts_.clock.Now());
    response->set_store_error(std::string(parts_.engine.StoreRoom().message()));
    if (!call.caller.is_page) {
      response->set_caller(tls::ToText(call.caller.identity));
    }
    return absl::OkStatus();
  });
}

UnaryCall* JobsService::SignIn(CallContext* context, const v1::SignInRequest* request,
                               v1::SignInResponse* response) {
  return Answer(parts_.access, context, "tandem.v1.Jobs.SignIn", request, [&](const Call& call) {
    TANDEM_ASSIGN_OR_RETURN(SignIns::Code code, parts_.sign_ins.Issue(call.caller));
    response->set_code(std::move(code.secret));
    response->set_page(std::move(code.page));
    response->set_caller(tls::ToText(call.caller.identity));
    *response->mutable_code_life() = proto::ToProto(SignIns::kCodeLife);
    return absl::OkStatus();
  });
}

absl::StatusOr<JobsService::OwnJob> JobsService::AdmitOwner(const CallContext& context,
                                                            std::string_view method,
                                                            const google::protobuf::Message& request,
                                                            const std::string& job) {
  TANDEM_ASSIGN_OR_RETURN(const Caller caller, parts_.access.Admit(context, method, &request));
  TANDEM_ASSIGN_OR_RETURN(v1::Job found, FindOwnJob(parts_.store, job, method, caller));
  return OwnJob{.caller = tls::ToText(caller.identity), .job = std::move(found)};
}

}  // namespace tandem::controller
