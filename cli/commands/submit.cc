// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/random.h"
#include "platform/status_macros.h"

namespace tandem::cli {

Outcome Validate(Context& context, const FileOptions& options) {
  // Nothing is dialled, but the address says on whose disks the files are.
  const absl::StatusOr<Address> address = ResolveAddress(context.target, context.environment);
  if (!address.ok()) {
    return Failure(kUsage, address.status().message());
  }
  TANDEM_RETURN_IF_ERROR(
      LoadJobFile(context, options.file, {.set = options.set}, address->is_here()).status());
  const std::string shown = options.file == "-" ? "standard input" : Escape(options.file);
  context.console.Write(Stream::kOut, absl::StrCat(shown, ": ok\n"));
  return kOk;
}

absl::StatusOr<v1::Job> SubmitSpec(Context& context, Client& client, const v1::JobSpec& spec,
                                   const std::string& request_id) {
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  // Makes repeating the call after a lost connection safe.
  request.set_request_id(request_id.empty() ? "cli-" + platform::SystemRandom().HexId(24) : request_id);
  absl::StatusOr<v1::Job> job = client.Submit(request);
  if (absl::IsInvalidArgument(job.status())) {
    Note(context.console,
         absl::StrCat("submit: the controller at ", client.address().target, " refuses the job:"));
    for (const absl::string_view line : absl::StrSplit(job.status().message(), '\n', absl::SkipEmpty())) {
      context.console.Write(Stream::kErr, Escape(line) + "\n");
    }
    return Failure(kInvalidSpec, "");
  }
  return job.ok() ? std::move(job) : CallFailure(job.status(), "submit", client.address());
}

Outcome Submit(Context& context, Client& client, const SubmitOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(
      const JobFile file,
      LoadJobFile(context, options.file, {.name = options.name, .resume = options.resume, .set = options.set},
                  client.address().is_here()));
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, SubmitSpec(context, client, file.spec, options.request_id));
  context.console.Write(Stream::kOut, absl::StrCat(job.id(), "\n"));
  if (options.follow) {
    return WatchToEnd(context, client, job.id(), Format::kText, /*patient=*/true);
  }
  if (options.wait) {
    return WaitToEnd(context, client, job.id(), std::nullopt, /*patient=*/true);
  }
  if (context.console.IsTerminal(Stream::kErr)) {
    Note(context.console, absl::StrCat("job ", Escape(job.name()), " is submitted; `tandem watch ",
                                       Escape(job.name()), "` shows it"));
  }
  return kOk;
}

}  // namespace tandem::cli
