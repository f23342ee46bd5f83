#include <exception>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/command_client.h"
#include "cli/job_file.h"
#include "plan/job_plan.h"
#include "plan/text.h"

namespace tandem::cli {

int Plan(Context& context, const FileOptions& options) {
  // A plan needs no data, wherever it is.
  const std::optional<JobFile> job = LoadJobFile(context, options.file, /*name=*/"", std::nullopt);
  if (!job.has_value()) {
    return kInvalidSpec;
  }
  std::string text;
  try {
    const plan::JobPlan job_plan = plan::MakeJobPlan(job->resolved);
    text = options.format == Format::kJson
               ? plan::PlanToJson(job_plan).dump(2)
               : plan::PlanToText(job_plan, plan::PlanTextOptions{.program = options.program});
  } catch (const std::exception& e) {  // the checker refuses our own program
    return Fail(context.console, kFailed, absl::StrCat("plan: ", e.what()));
  }
  if (text.empty() || text.back() != '\n') {
    text += '\n';
  }
  context.console.Write(Stream::kOut, text);
  return kOk;
}

}  // namespace tandem::cli
