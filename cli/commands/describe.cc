// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/group_table.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/rank_list.h"
#include "cli/watch/watch_frame.h"
#include "jobspec/jobspec.h"
#include "plan/layout_text.h"
#include "plan/prefetch_choice.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"

namespace tandem::cli {
namespace {

class Description {
 public:
  Description(const Context& context, int width) : context_(context), width_(width) {}

  void Row(absl::string_view label, const std::string& value) {
    if (!value.empty()) {
      const std::vector<std::string> lines = Wrap(value, width_, std::string(13, ' '));
      for (size_t i = 0; i < lines.size(); ++i) {
        absl::StrAppend(&text_, i == 0 ? PadRight(label, 13) + lines[i].substr(13) : lines[i], "\n");
      }
    }
  }
  void Section(absl::string_view title) { absl::StrAppend(&text_, "\n", title, "\n"); }
  void Text(absl::string_view text) { absl::StrAppend(&text_, text); }

  static std::string DigestText(const v1::StartedFrom& from) {
    return from.digest().empty() ? "" : absl::StrCat(", digest ", Escape(from.digest()));
  }

  // The weights that an attempt started from, unless it resumed from a checkpoint.
  static std::string WeightsText(const v1::StartedFrom& from) {
    switch (from.kind()) {
      case v1::START_KIND_SCRATCH:
        return "random, by the seed";
      case v1::START_KIND_WEIGHTS:
        return absl::StrCat(Escape(from.path()), DigestText(from));
      default:
        return "";
    }
  }

  // Adds the times, placement and end of one attempt.
  void Attempt(const v1::Attempt& attempt) {
    Section(absl::StrCat("Attempt ", attempt.number()));
    Row("  started", TimeText(attempt.started(), context_.zone));
    Row("  ended", TimeText(attempt.ended(), context_.zone));
    Row("  device", DeviceText(attempt.device()));
    if (!attempt.resumed_from().empty()) {
      Row("  resumed", absl::StrCat(Escape(attempt.resumed_from()), " at step ", attempt.resumed_step(),
                                    DigestText(attempt.started_from())));
    }
    Row("  weights", WeightsText(attempt.started_from()));
    std::map<std::string, std::vector<int>> ranks_of;
    for (const v1::RankSlot& slot : attempt.slots()) {
      ranks_of[slot.worker()].push_back(slot.rank());
    }
    for (const auto& [worker, ranks] : ranks_of) {
      Row("  ranks", absl::StrCat(RankList(ranks), " on worker ", Escape(worker)));
    }
    Row("  program", Escape(attempt.program_digest()));
    if (attempt.has_cause()) {
      Row("  cause", absl::StrCat(Escape(attempt.cause().reason()), " (", ClassText(attempt.cause().class_()),
                                  "): ", CauseText(attempt.cause())));
    }
  }

  const std::string& text() const { return text_; }

 private:
  const Context& context_;
  const int width_;
  std::string text_;
};

// Returns the groups from which the job's ranks create communicators, by name.
std::vector<parallel::GroupKind> GroupKinds(const v1::Job& job) {
  std::vector<parallel::GroupKind> kinds;
  for (const v1::GroupList& group : job.groups()) {
    if (kinds.empty() || kinds.back().name != group.name()) {
      parallel::GroupKind& kind = kinds.emplace_back();
      kind.name = group.name();
      if (group.has_clone_of() && group.clone_of() >= 0 && group.clone_of() < job.groups_size()) {
        kind.clone_of = job.groups(group.clone_of()).name();
      }
    }
    kinds.back().groups.emplace_back(group.ranks().begin(), group.ranks().end());
  }
  return kinds;
}

// Prints the layout, computed from the job's spec as its ranks compute it.
Outcome DescribeLayout(Context& context, const v1::Job& job) {
  const std::vector<v1::Violation> violations = jobspec::Validate(job.resolved());
  if (!violations.empty()) {
    return Failure(
        kFailed,
        absl::StrCat("describe: another version planned the job, and this version refuses its spec: ",
                     jobspec::ToText(violations.front())));
  }
  context.Print(plan::LayoutText(plan::MakeJobPlan(job.resolved())));
  return kOk;
}

// Returns what the job's reason means and what to do; empty if nothing needs to be done.
std::string MeaningOf(const v1::Job& job) {
  const std::string& code = job.has_cause() ? job.cause().reason() : job.reason();
  const auto* const found = std::find_if(proto::kReasons.begin(), proto::kReasons.end(),
                                         [&](const proto::Reason& reason) { return reason.code == code; });
  if (job.state() == v1::JOB_STATE_CANCELLED || found == proto::kReasons.end() || found->IsOrdinary()) {
    return "";
  }
  return absl::StrCat(found->meaning, "; ", found->remedy, " (docs/reasons.md)");
}

// Describes the request for a checkpoint that the ranks have not carried out yet, and who made it.
std::string WantedText(const std::vector<v1::Event>& events, int64_t request, absl::TimeZone zone) {
  for (const v1::Event& event : events) {
    if (event.seq() == request) {
      return absl::StrCat(Escape(event.message()), ", by ", Escape(event.actor()), " at ",
                          TimeText(event.time(), zone), "; not done yet");
    }
  }
  return "a checkpoint; not done yet";
}

}  // namespace

Outcome Describe(Context& context, Client& client, const DescribeOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(options.job));
  if (options.layout) {
    return DescribeLayout(context, job);
  }
  if (options.format == Format::kJson) {
    context.Print(absl::StrCat(ToJson(job, 2), "\n"));
    return kOk;
  }
  if (options.format == Format::kYaml) {
    context.Print(ToYaml(job, 0));
    return kOk;
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, client.ListEvents(job.id()));
  const int width = context.TableWidth();
  Description out(context, width);
  out.Row("name", Escape(job.name()));
  out.Row("id", Escape(job.id()));
  out.Row("owner", Escape(job.owner()));
  std::string state = StateText(job.state());
  if (job.state() == v1::JOB_STATE_STOPPING) {
    absl::StrAppend(&state, " (to ", StateText(job.outcome()), ")");
  }
  out.Row("state", state);
  out.Row("reason", ReasonText(job));
  if (job.has_cause() && job.state() != v1::JOB_STATE_CANCELLED) {
    out.Row("cause", CauseText(job.cause()));
  }
  out.Row("meaning", MeaningOf(job));
  out.Row("step", absl::StrCat(job.last_step(), " of ", job.resolved().training().steps()));
  if (job.skipped_steps() > 0 && job.last_step() > 0) {
    out.Row("skipped", absl::StrFormat("%d of %d steps changed no weight (%.1f %%): their gradients were not "
                                       "finite, or their norm a spike",
                                       job.skipped_steps(), job.last_step(),
                                       100.0 * static_cast<double>(job.skipped_steps()) /
                                           static_cast<double>(job.last_step())));
  }
  out.Row("data", Escape(job.data()));
  if (job.resolved().debug().balanced_routing()) {
    out.Row(
        "measures",
        "speed alone: debug.balanced_routing deals the tokens to the experts, and the losses mean nothing");
  }
  if (job.has_progress()) {
    out.Row("progress", ProgressText(job.progress()));
  }
  if (job.submitted().parallelism().fsdp().prefetch() != job.resolved().parallelism().fsdp().prefetch() &&
      plan::ChoosesPrefetch(job.submitted())) {
    out.Row("prefetch", absl::StrCat(job.resolved().parallelism().fsdp().prefetch(),
                                     " units ahead, chosen when it was submitted, by the profile ",
                                     plan::PrefetchPreset(job.resolved())));
  }
  out.Row("created", TimeText(job.created(), context.zone));
  if (IsSet(job.ended())) {
    out.Row("ended", absl::StrCat(TimeText(job.ended(), context.zone), ", ran ", SpanText(RunTime(job))));
  }
  out.Row("time", TimeAccountText(job.time()));
  const int first = std::max(0, job.attempts_size() - 5);
  for (int i = first; i < job.attempts_size(); ++i) {
    out.Attempt(job.attempts(i));
  }
  if (job.groups_size() > 0) {  // older controllers send none
    out.Section("Process groups");
    out.Text(GroupTable(GroupKinds(job), width, context.console.unicode()));
  }
  out.Section("Checkpoints");
  if (!HasEnded(job.state()) && job.checkpoints().requested() > job.checkpoints().answered()) {
    out.Row("  wanted", WantedText(events, job.checkpoints().requested(), context.zone));
  }
  out.Row(job.checkpoints().failed_in_a_row() > 0 ? "  failing" : "  failed",
          FailedSavesText(job.checkpoints()));
  for (const v1::CheckpointWarning& warning : job.checkpoints().resume()) {
    out.Row("  resumed", Escape(warning.message()));
  }
  const std::vector<v1::CheckpointCommitted> kept = KeptCheckpoints(events);
  for (const v1::CheckpointCommitted& checkpoint : kept) {
    out.Text(absl::StrCat("  step ", checkpoint.step(), "  ", Escape(checkpoint.path()), "  ",
                          BytesText(checkpoint.bytes()), "\n"));
  }
  if (kept.empty()) {
    out.Text("  none yet\n");
  }
  out.Section("Events");
  out.Text(RenderEvents(events, /*with_job=*/false, context));
  out.Section("Spec, resolved");
  out.Text(ToYaml(job.resolved(), 2));
  context.Print(out.text());
  return kOk;
}

}  // namespace tandem::cli
