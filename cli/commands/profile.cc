// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "plan/job_plan.h"
#include "plan/quantity_text.h"
#include "plan/recorded_steps.h"
#include "platform/counted_text.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "schedules/passes/segments.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/timeline.h"

namespace tandem::cli {
namespace {

// Returns the preset whose rates the profile keeps for what was not measured.
absl::StatusOr<schedules::DeviceProfile> BaseProfile(const std::string& asked, const v1::Job& job) {
  const bool on_cpu = !job.attempts().empty() && job.attempts().rbegin()->device() == v1::DEVICE_CPU;
  if (asked.empty() && !on_cpu) {
    return Failure(
        kUsage,
        absl::StrCat("profile: --profile needs --base for a job on GPUs: the preset of its device; allowed: ",
                     absl::StrJoin(schedules::PresetProfileNames(), ", ")));
  }
  absl::StatusOr<schedules::DeviceProfile> base = schedules::PresetProfile(asked.empty() ? "cpu" : asked);
  return base.ok() ? base : Failure(kUsage, absl::StrCat("profile: --base: ", base.status().message()));
}

int MostRanksOnAWorker(const v1::Attempt& attempt) {
  std::map<std::string, int> ranks;
  int most = 1;
  for (const v1::RankSlot& slot : attempt.slots()) {
    most = std::max(most, ++ranks[slot.worker()]);
  }
  return most;
}

// Says how many graphs the job's other steps replay; empty if it has none.
std::string GraphsText(const plan::JobPlan& plan) {
  const int graphs = schedules::CountGraphs(plan.stage.train);
  return graphs == 0
             ? ""
             : absl::StrCat("other steps replay ",
                            platform::CountedText(schedules::CountSegments(plan.stage.train), "segment"),
                            " of passes with ", platform::CountedText(graphs, "graph"),
                            "; these ran pass by pass\n");
}

// "recorded steps 12 to 13 on 2 ranks: the longest took 6.1 ms, ...", without the steps that ran one
// instruction at a time.
std::string Summary(const plan::JobPlan& plan, const std::vector<v1::StepTimeline>& steps) {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step_ns = 0;
  int64_t compute_ns = 0;
  int64_t exposed_ns = 0;
  for (const v1::StepTimeline& step : steps) {
    if (step.serialized()) {
      continue;
    }
    first = first == 0 ? step.step() : std::min(first, step.step());
    last = std::max(last, step.step());
    const schedules::Timeline timeline = plan::ToTimeline(step);
    const schedules::Program& program = plan::ProgramOf(plan, step);
    const int64_t ns = schedules::StepNanoseconds(program, timeline);
    if (ns > step_ns) {
      step_ns = ns;
      compute_ns = schedules::BusyNanoseconds(program, timeline).at(schedules::ComputeStream(program));
      exposed_ns = schedules::ExposedCommunication(program, timeline);
    }
  }
  return absl::StrCat(
      "recorded ", first == last ? "step " : "steps ", first, first == last ? "" : absl::StrCat(" to ", last),
      " on ", platform::CountedText(plan.topology.world, "rank"), ": the longest took ",
      plan::DurationText(step_ns), ", compute worked for ", plan::DurationText(compute_ns), " of it, ",
      plan::DurationText(exposed_ns), " of communication was exposed\n", GraphsText(plan));
}

// Checks, before the long recording, that the file can be written. Errors are one line.
absl::Status CheckCanWrite(const std::string& path) {
  const bool exists = ::access(path.c_str(), F_OK) == 0;
  const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_WRONLY | O_CREAT, 0666);
  if (!exists && file.ok()) {
    std::error_code error;
    ::unlink(std::filesystem::canonical(path, error).c_str());  // not `path`, which may be a link to it
  }
  return file.ok() ? absl::OkStatus()
                   : absl::FailedPreconditionError(
                         absl::StrCat("cannot ", file.status().message(), "; name another file"));
}

}  // namespace

Outcome Profile(Context& context, Client& client, const ProfileOptions& options) {
  const auto failure = [&](absl::string_view why) {
    return Failure(kFailed, absl::StrCat(context.what, ": ", why));
  };
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(options.job));
  std::optional<schedules::DeviceProfile> base;
  if (!options.profile.empty() && !job.attempts().empty()) {
    TANDEM_ASSIGN_OR_RETURN(base, BaseProfile(options.base, job));
  }

  for (const std::string& path : {options.trace, options.profile}) {
    const absl::Status can_write = path.empty() ? absl::OkStatus() : CheckCanWrite(path);
    if (!can_write.ok()) {
      return failure(can_write.message());
    }
  }

  v1::ProfileRequest request;
  request.set_job(job.id());
  request.set_steps(options.steps);
  request.set_serialized(!options.profile.empty());
  std::vector<v1::StepTimeline> steps;
  std::string error;
  TANDEM_RETURN_IF_ERROR(client.Profile(request, [&](const v1::ProfileChunk& chunk) {
    if (!chunk.error().empty()) {
      error = absl::StrCat("rank ", chunk.rank(), ": ", Escape(chunk.error()));
      return false;
    }
    steps.push_back(chunk.timeline());
    return true;
  }));
  if (!error.empty()) {
    return failure(absl::StrCat(error, "; nothing was written"));
  }

  std::string text;
  try {
    const plan::JobPlan plan = plan::PlanOfNewestAttempt(job);
    if (const absl::Status same = plan::CheckRecorded(plan, steps); !same.ok()) {
      return failure(same.message());
    }
    text = Summary(plan, steps);
    const auto write = [&](const std::string& path, const std::string& content, const std::string& use) {
      const absl::Status written = platform::SystemFiles().Write(path, content);
      if (written.ok()) {
        absl::StrAppend(&text, path, ": ", use, "\n");
      } else {
        error = std::string(written.message());
      }
    };
    if (!options.trace.empty()) {
      write(options.trace, plan::RecordedTrace(plan, steps), "a trace; open it in ui.perfetto.dev");
    }
    if (base.has_value()) {
      const v1::Attempt& attempt = *job.attempts().rbegin();
      write(options.profile,
            schedules::ProfileToJson(
                plan::RecordedProfile(plan, steps, *std::move(base), MostRanksOnAWorker(attempt))),
            "a device profile, for `tandem plan --profile`");
    }
  } catch (const std::exception& e) {  // the check refuses our own programs
    return failure(e.what());
  }
  context.Print(text);
  return error.empty() ? Outcome(kOk) : failure(error);
}

}  // namespace tandem::cli
