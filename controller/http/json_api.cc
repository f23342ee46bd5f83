// SPDX-License-Identifier: Apache-2.0
#include "controller/http/json_api.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "controller/core/state.h"
#include "controller/http/json_answer.h"
#include "plan/job_plan.h"
#include "plan/recorded_steps.h"
#include "platform/clock.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::controller {
namespace {

// Answers may have megabytes, and are made beside scrapes; further calls are told to try again.
constexpr int kMostAtOnce = 8;
constexpr auto kLongestCall = std::chrono::seconds(10);
constexpr auto kLongestLook = std::chrono::seconds(2);  // of a probe
// Each holds a thread of the server until the ranks have recorded their steps.
constexpr int kMostProfilesAtOnce = 2;

using Stub = v1::Jobs::Stub;

// Marks a call as the page's, with the request's session.
using MarkCall = std::function<void(grpc::ClientContext&)>;

double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  double out = value;
  static_cast<void>(absl::SimpleAtod(absl::StrFormat("%.5g", value), &out));
  return out;
}

template <typename Response>
void Shorten(Response&) {}
void Shorten(v1::ListReportsResponse& response) {
  for (v1::StepReport& report : *response.mutable_reports()) {
    if (!report.has_norms()) {
      continue;
    }
    v1::Norms& norms = *report.mutable_norms();
    for (auto* list :
         {norms.mutable_weight(), norms.mutable_gradient(), norms.mutable_update(), norms.mutable_rms(),
          norms.mutable_max_abs(), norms.mutable_gradient_max_abs(), norms.mutable_update_max_abs()}) {
      for (double& value : *list) {
        value = Rounded(value);
      }
    }
  }
}

template <typename Request, typename Response>
HttpAnswer Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const MarkCall& mark, const QueryFields& query) {
  Request request;
  if (const absl::Status status = FillFromQuery(query, request); !status.ok()) {
    return JsonError(status);
  }
  grpc::ClientContext context;
  mark(context);
  context.set_deadline(std::chrono::system_clock::now() + kLongestCall);
  Response response;
  if (const grpc::Status status = (stub.*method)(&context, request, &response); !status.ok()) {
    return JsonError(StatusOf(status));
  }
  Shorten(response);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string body;
  const auto printed = google::protobuf::util::MessageToJsonString(response, &body, options);
  return printed.ok() ? JsonAnswer(200, std::move(body))
                      : JsonError(absl::InternalError("the answer has no JSON: " + printed.ToString()));
}

template <auto method>
HttpAnswer Of(Stub& stub, const MarkCall& mark, const QueryFields& query) {
  return Call(stub, method, mark, query);
}

constexpr auto kLongestProfile = std::chrono::minutes(5);

// The limit for all ranks and steps together: an instruction is about 750 bytes of a trace, which is held as
// a whole.
constexpr int64_t kMostInstructions = 100'000;

absl::Status TooLarge(const std::string& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("the steps of all ranks have more than ", kMostInstructions,
                   " instructions, too many for the page; ask for fewer steps, or let `tandem profile ", job,
                   " --trace FILE` write them"));
}

// Records steps of a running job, as Jobs.Profile does (`query`: its fields), and answers with a trace in
// Chrome's trace event format once all ranks have sent theirs; with an error if that takes more than five
// minutes. `mark` marks a call as the page's (JsonApi::Mark).
HttpAnswer ProfileTrace(Stub& stub, const MarkCall& mark, const QueryFields& query) {
  v1::ProfileRequest request;
  if (const absl::Status status = FillFromQuery(query, request); !status.ok()) {
    return JsonError(status);
  }
  v1::GetJobRequest of;
  of.set_job(request.job());
  v1::Job job;
  grpc::ClientContext get;
  mark(get);
  if (const grpc::Status status = stub.GetJob(&get, of, &job); !status.ok()) {
    return JsonError(StatusOf(status));
  }
  request.set_job(job.id());
  std::optional<plan::JobPlan> plan;  // none of a job that the service will refuse: it has no ranks
  if (HasRanks(job.state()) && job.attempts_size() > 0) {
    try {
      plan = plan::PlanOfNewestAttempt(job);
    } catch (const std::exception& e) {  // the check refuses our own programs
      return JsonError(absl::InternalError(e.what()));
    }
    const int64_t runs = std::max<int64_t>(1, request.steps()) * (request.serialized() ? 2 : 1);
    const auto length = static_cast<int64_t>(plan->stage.train.instructions.size());
    if (length * plan->topology.world > kMostInstructions / runs) {
      return JsonError(TooLarge(job.name()));
    }
  }
  grpc::ClientContext context;
  mark(context);
  context.set_deadline(std::chrono::system_clock::now() + kLongestProfile);
  const std::unique_ptr<grpc::ClientReader<v1::ProfileChunk>> stream = stub.Profile(&context, request);
  std::vector<v1::StepTimeline> steps;
  std::string error;
  int64_t instructions = 0;
  bool too_large = false;
  for (v1::ProfileChunk chunk; stream->Read(&chunk);) {
    instructions += chunk.timeline().start_ns_size();
    if (instructions > 2 * kMostInstructions) {  // of other programs than the plan's
      too_large = true;
      context.TryCancel();
      continue;
    }
    if (!chunk.error().empty() && error.empty()) {
      error = absl::StrCat("rank ", chunk.rank(), ": ", chunk.error());
      context.TryCancel();
    }
    steps.push_back(std::move(*chunk.mutable_timeline()));
  }
  const grpc::Status status = stream->Finish();
  if (too_large) {
    return JsonError(TooLarge(job.name()));
  }
  if (!error.empty()) {
    return JsonError(absl::AbortedError(error));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return JsonError(absl::UnavailableError(
        "the ranks have not recorded these steps within five minutes; `tandem profile` waits for as long as "
        "they take"));
  }
  if (!status.ok()) {
    return JsonError(StatusOf(status));
  }
  if (!plan.has_value()) {
    return JsonError(absl::UnavailableError("the job has only just started; try again"));
  }
  const absl::Status same = plan::CheckRecorded(*plan, steps);
  return same.ok() ? JsonAnswer(200, plan::RecordedTrace(*plan, steps)) : JsonError(same);
}

using MethodCall = HttpAnswer (*)(Stub&, const MarkCall&, const QueryFields&);
struct Method {
  MethodCall call;
  bool changes = false;       // something, or makes ranks work: only with a session
  bool takes_longer = false;  // as long as the ranks need
};
const std::map<std::string, Method>& Methods() {
  static const auto& methods = *new std::map<std::string, Method>{
      {"Cancel", {Of<&Stub::Cancel>, /*changes=*/true}},
      {"Checkpoint", {Of<&Stub::Checkpoint>, /*changes=*/true}},
      {"GetJob", {Of<&Stub::GetJob>}},
      {"GetServerInfo", {Of<&Stub::GetServerInfo>}},
      {"ListEvents", {Of<&Stub::ListEvents>}},
      {"ListJobs", {Of<&Stub::ListJobs>}},
      {"ListReports", {Of<&Stub::ListReports>}},
      {"ListWorkers", {Of<&Stub::ListWorkers>}},
      {"Profile", {ProfileTrace, /*changes=*/true, /*takes_longer=*/true}},
  };
  return methods;
}

HttpAnswer Busy() {
  HttpAnswer busy = JsonError(absl::UnavailableError("too many calls at once; try again in a second"));
  busy.headers.emplace_back("Retry-After", "1");
  return busy;
}

}  // namespace

HttpAnswer JsonApi::Answer(const std::string& method, const HttpRequest& request,
                           const std::string& session) {
  const auto it = Methods().find(method);
  if (it == Methods().end()) {
    return JsonError(absl::NotFoundError(absl::StrCat(
        "there is no such call; allowed: ",
        absl::StrJoin(Methods(), ", ",
                      [](std::string* out, const auto& each) { absl::StrAppend(out, each.first); }))));
  }
  const Method& called = it->second;
  if (called.changes != request.is_post) {
    return WrongMethod(method, /*must_be_post=*/called.changes);
  }
  if (called.changes && session.empty()) {
    return JsonError(absl::UnauthenticatedError(
        absl::StrCat(method, " is for those who are signed in; `tandem sign-in` signs a browser in")));
  }
  // Until the answer is written: a client that reads slowly holds its memory.
  std::atomic<int>& in_progress = called.takes_longer ? profiles_in_progress_ : in_progress_;
  const int before = in_progress++;
  std::shared_ptr<void> place(nullptr, [&in_progress](void*) { --in_progress; });
  if (before >= (called.takes_longer ? kMostProfilesAtOnce : kMostAtOnce)) {
    return Busy();
  }
  Stub stub(channel_);
  HttpAnswer answer = called.call(
      stub, [&](grpc::ClientContext& context) { mark_(session, request.client, context); }, request.query);
  answer.held = std::move(place);
  return answer;
}

HttpAnswer JsonApi::Health() {
  // Probes need no certificate, so only one asks at a time; those that waited for it get its answer.
  const absl::Time asked = platform::SteadyClock().Now();
  const absl::MutexLock lock(&health_mu_);
  if (health_at_ < asked) {
    health_ = AskHealth();
    health_at_ = platform::SteadyClock().Now();
  }
  return health_;
}

HttpAnswer JsonApi::AskHealth() {
  Stub stub(channel_);
  // Answered by the thread that decides.
  v1::ListWorkersRequest request;
  request.set_page_size(1);
  v1::ListWorkersResponse response;
  grpc::ClientContext context;
  mark_("", "probe", context);
  context.set_deadline(std::chrono::system_clock::now() + kLongestLook);
  const grpc::Status status = stub.ListWorkers(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return {.status = 503, .body = "the controller has decided nothing for two seconds\n"};
  }
  return {.status = status.ok() ? 200 : 503, .body = status.ok() ? "ok\n" : status.error_message() + "\n"};
}

}  // namespace tandem::controller
