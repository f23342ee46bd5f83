// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "platform/random.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

// Says that the job has more ranks than the connected workers have slots; empty if it has not, or if no
// worker is connected, since then the job's reason says so.
std::string WhatIsMissing(const v1::JobSpec& resolved, const std::vector<v1::Worker>& workers) {
  const bool cuda = resolved.resources().device() == v1::DEVICE_CUDA;
  const int ranks = resolved.parallelism().ranks();
  int64_t slots = 0;
  bool connected = false;
  for (const v1::Worker& worker : workers) {
    if (worker.connected()) {
      connected = true;
      const int offered = cuda ? worker.gpus() : worker.slots();
      const int most = resolved.resources().ranks_per_worker();
      slots += most > 0 ? std::min(offered, most) : offered;
    }
  }
  return !connected || slots >= ranks
             ? ""
             : absl::StrCat("needs ", ranks,
                            cuda ? " GPUs, and the workers have " : " slots, and the workers have ", slots,
                            " for it: it waits until more workers join, and later jobs wait behind it");
}

}  // namespace

Outcome Validate(Context& context, const JobSource& source) {
  // Connects to nothing, but the address says on which machine's disks the files are.
  TANDEM_ASSIGN_OR_RETURN(const Address address, ResolveAddress(context.target, context.environment));
  TANDEM_RETURN_IF_ERROR(LoadJobFile(context, source, address.is_here()).status());
  const std::string shown = source.file == "-" ? "standard input" : Escape(source.file);
  context.Print(absl::StrCat(shown, ": ok\n"));
  return kOk;
}

absl::StatusOr<v1::Job> SubmitSpec(Context& context, Client& client, const v1::JobSpec& spec,
                                   const std::string& request_id) {
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  // Makes repeating the call after a lost connection safe.
  request.set_request_id(request_id.empty() ? "cli-" + platform::SystemRandom().HexId(24) : request_id);
  const Interrupts interrupts;
  absl::StatusOr<v1::Job> job = client.Submit(request, [&] { return interrupts.Count() > 0; });
  if (absl::IsInvalidArgument(job.status())) {
    Note(context.console,
         absl::StrCat("submit: the controller at ", client.address().target, " refuses the job:"));
    for (const absl::string_view line : absl::StrSplit(job.status().message(), '\n', absl::SkipEmpty())) {
      context.console.Write(Stream::kErr, Escape(line) + "\n");
    }
    return Failure(kInvalidSpec, "");
  }
  // The controller may finish the call although its answer is lost.
  constexpr char kMayBeThere[] =
      "the job may be there all the same: look at `tandem get jobs` before you submit it again";
  const std::string& target = client.address().target;
  if (absl::IsCancelled(job.status())) {
    return Failure(kCancelled, absl::StrCat("submit: interrupted before the controller at ", target,
                                            " answered; ", kMayBeThere));
  }
  if (absl::IsDeadlineExceeded(job.status())) {
    return Failure(kTimeout, absl::StrCat("submit: the controller at ", target,
                                          " did not answer in time; it may be overloaded or stopped, and ",
                                          kMayBeThere));
  }
  return job.ok() ? std::move(job) : CallFailure(job.status(), "submit", client.address());
}

Outcome Submit(Context& context, Client& client, const SubmitOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const JobFile file, LoadJobFile(context, options, client.address().is_here()));
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, SubmitSpec(context, client, file.spec, options.request_id));
  context.Print(absl::StrCat(job.id(), "\n"));
  const std::string name = Escape(job.name());
  if (context.console.OutClosed()) {  // a script that tries again because of the exit code would train twice
    Note(context.console, absl::StrCat("job ", name, " (", Escape(job.id()),
                                       ") is submitted all the same; `tandem cancel ", name, "` ends it"));
  }
  // If the workers cannot be listed, the job is submitted nevertheless, and `get jobs` says what it waits
  // for.
  if (const auto workers = client.ListWorkers(); workers.ok()) {
    if (const std::string missing = WhatIsMissing(file.resolved, *workers); !missing.empty()) {
      Note(context.console, absl::StrCat("job ", name, " ", missing, "; `tandem cancel ", name, "` ends it"));
    }
  }
  if (options.follow) {
    return Watch(context, client, {.job = job.id(), .patient = true});
  }
  if (options.wait) {
    return Wait(context, client, {.job = job.id(), .patient = true});
  }
  if (context.console.IsTerminal(Stream::kErr)) {
    Note(context.console, absl::StrCat("job ", name, " is submitted; `tandem watch ", name, "` shows it"));
  }
  return kOk;
}

}  // namespace tandem::cli
