// SPDX-License-Identifier: Apache-2.0
#include "controller/http/profile_trace.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "controller/core/state.h"
#include "controller/http/json_answer.h"
#include "plan/job_plan.h"
#include "plan/recorded_steps.h"

namespace tandem::controller {
namespace {

constexpr auto kLongest = std::chrono::minutes(5);

// The limit for all ranks and steps together: an instruction is about 750 bytes of a trace, which is held as
// a whole.
constexpr int64_t kMostInstructions = 100'000;

absl::Status TooLarge(const std::string& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("the steps of all ranks have more than ", kMostInstructions,
                   " instructions, too many for the page; ask for fewer steps, or let `tandem profile ", job,
                   " --trace FILE` write them"));
}

}  // namespace

HttpAnswer ProfileTrace(v1::Jobs::Stub& stub, const std::function<void(grpc::ClientContext&)>& mark,
                        const QueryFields& query) {
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
  context.set_deadline(std::chrono::system_clock::now() + kLongest);
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

}  // namespace tandem::controller
