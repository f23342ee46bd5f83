// SPDX-License-Identifier: Apache-2.0
#include "controller/http/profile_trace.h"

#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "controller/http/json_answer.h"
#include "controller/http/query.h"
#include "plan/job_plan.h"
#include "plan/recorded_steps.h"

namespace tandem::controller {
namespace {

constexpr auto kLongest = std::chrono::minutes(5);

}  // namespace

HttpAnswer ProfileTrace(v1::Jobs::Stub& stub, const std::function<void(grpc::ClientContext&)>& mark,
                        const std::string& query) {
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
  grpc::ClientContext context;
  mark(context);
  context.set_deadline(std::chrono::system_clock::now() + kLongest);
  const std::unique_ptr<grpc::ClientReader<v1::ProfileChunk>> stream = stub.Profile(&context, request);
  std::vector<v1::StepTimeline> steps;
  std::string error;
  for (v1::ProfileChunk chunk; stream->Read(&chunk);) {
    if (!chunk.error().empty() && error.empty()) {
      error = absl::StrCat("rank ", chunk.rank(), ": ", chunk.error());
      context.TryCancel();
    }
    steps.push_back(std::move(*chunk.mutable_timeline()));
  }
  const grpc::Status status = stream->Finish();
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
  try {
    const plan::JobPlan plan = plan::PlanOfNewestAttempt(job);
    const absl::Status same = plan::CheckRecorded(plan, steps);
    return same.ok() ? JsonAnswer(200, plan::RecordedTrace(plan, steps)) : JsonError(same);
  } catch (const std::exception& e) {  // the check refuses our own programs
    return JsonError(absl::InternalError(e.what()));
  }
}

}  // namespace tandem::controller
