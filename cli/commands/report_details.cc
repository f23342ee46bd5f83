// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/report_details.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"

namespace tandem::cli {
namespace {

// The details of the last report that has them, of the steps from first to last (0: to the newest).
absl::StatusOr<std::optional<ReportDetails>> FindIn(Client& client, const std::string& job_id,
                                                    const DetailsRequest& request, int64_t first,
                                                    int64_t last) {
  std::optional<ReportDetails> found;
  v1::ParameterTable table;
  const absl::Status status =
      client.ListReports(job_id, first, last, /*norms=*/true, [&](const v1::ListReportsResponse& page) {
        if (page.has_table()) {
          table = page.table();
        }
        for (const v1::StepReport& report : page.reports()) {
          if (request.has_them(report.norms())) {
            found = ReportDetails{report.step(), report.norms(), table};
          }
        }
        return true;
      });
  if (!status.ok()) {
    return status;
  }
  if (found.has_value()) {
    found->table = table;
  }
  return found;
}

// Without a step the newest: the last few reports have it, unless details were dropped under load.
absl::StatusOr<std::optional<ReportDetails>> Find(Client& client, const v1::Job& job,
                                                  const DetailsRequest& request) {
  if (request.step > 0) {
    return FindIn(client, job.id(), request, request.step, request.step);
  }
  const int64_t newest = std::max<int64_t>(1, job.last_step());
  absl::StatusOr<std::optional<ReportDetails>> found = FindIn(client, job.id(), request, newest, 0);
  if (!found.ok() || found->has_value()) {
    return found;
  }
  return FindIn(client, job.id(), request, std::max<int64_t>(1, newest - 200), 0);
}

int FailWithoutThem(Context& context, const v1::Job& job, const DetailsRequest& request) {
  if (const std::string none = request.none(job); !none.empty()) {
    return Fail(context.console, kFailed, absl::StrCat(request.what, ": ", none));
  }
  if (request.step > job.last_step()) {
    return Fail(context.console, kNotFound,
                absl::StrCat(request.what, ": step ", request.step, " has not been made yet; the newest is ",
                             job.last_step()));
  }
  if (request.step == 0) {
    return Fail(context.console, kNotFound,
                absl::StrCat(request.what, ": the job ",
                             job.last_step() == 0 ? "has made no step yet" : "has none for its newest steps",
                             " (", StateText(job.state()), ")"));
  }
  return Fail(context.console, kNotFound,
              absl::StrCat(request.what, ": none are kept for step ", request.step,
                           "; the newest steps have them: omit --step"));
}

}  // namespace

std::optional<ReportDetails> FindDetails(Context& context, Client& client, const DetailsRequest& request,
                                         int& code) {
  const absl::StatusOr<v1::Job> job = client.GetJob(request.job);
  if (!job.ok()) {
    code = Fail(context, client, job.status(), request.what);
    return std::nullopt;
  }
  absl::StatusOr<std::optional<ReportDetails>> found = Find(client, *job, request);
  if (!found.ok()) {
    code = Fail(context, client, found.status(), request.what);
    return std::nullopt;
  }
  if (!found->has_value()) {
    code = FailWithoutThem(context, *job, request);
  }
  return *std::move(found);
}

}  // namespace tandem::cli
