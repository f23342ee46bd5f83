// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/report_details.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

// The details of the last report that has them, of the steps from first to last (0: to the newest).
absl::StatusOr<std::optional<ReportDetails>> FindIn(Client& client, const std::string& job_id,
                                                    const DetailsRequest& request, int64_t first,
                                                    int64_t last) {
  std::optional<ReportDetails> found;
  v1::ParameterTable table;
  TANDEM_RETURN_IF_ERROR(
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
      }));
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

absl::Status FailureWithoutThem(const v1::Job& job, const DetailsRequest& request) {
  const std::string none = request.none(job);
  const std::string why =
      !none.empty() ? none
      : request.step > job.last_step()
          ? absl::StrCat("step ", request.step, " has not been made yet; the newest is ", job.last_step())
      : request.step == 0
          ? absl::StrCat("the job ",
                         job.last_step() == 0 ? "has made no step yet" : "has none for its newest steps",
                         " (", StateText(job.state()), ")")
          : absl::StrCat("none are kept for step ", request.step,
                         "; the newest steps have them: omit --step");
  return Failure(none.empty() ? kNotFound : kFailed, absl::StrCat(request.what, ": ", why));
}

}  // namespace

absl::StatusOr<ReportDetails> FindDetails(Client& client, const DetailsRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(request.job));
  TANDEM_ASSIGN_OR_RETURN(std::optional<ReportDetails> found, Find(client, job, request));
  if (!found.has_value()) {
    return FailureWithoutThem(job, request);
  }
  return *std::move(found);
}

}  // namespace tandem::cli
