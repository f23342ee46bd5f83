// SPDX-License-Identifier: Apache-2.0
#include "cli/top/top_frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"

namespace tandem::cli {
namespace {

// Jobs with ranks before jobs without, each in the order of submission.
std::vector<const v1::Job*> InOrder(const std::vector<v1::Job>& jobs) {
  std::vector<const v1::Job*> out;
  for (auto it = jobs.rbegin(); it != jobs.rend(); ++it) {
    out.push_back(&*it);
  }
  std::stable_partition(out.begin(), out.end(),
                        [](const v1::Job* job) { return job->state() != v1::JOB_STATE_QUEUED; });
  return out;
}

std::string Summary(const TopState& state) {
  int connected = 0;
  int slots = 0;
  int in_use = 0;
  for (const v1::Worker& worker : state.workers) {
    connected += worker.connected() ? 1 : 0;
    slots += worker.connected() ? worker.slots() : 0;
    in_use += worker.slots_in_use();
  }
  std::map<v1::JobState, int> by_state;
  double tokens_per_second = 0;
  for (const v1::Job& job : state.jobs) {
    ++by_state[job.state()];
    if (const auto it = state.reports.find(job.id()); it != state.reports.end() && it->second.seconds() > 0) {
      tokens_per_second += static_cast<double>(it->second.tokens()) / it->second.seconds();
    }
  }
  std::vector<std::string> counts;
  for (const auto& [each, count] : by_state) {
    counts.push_back(absl::StrCat(count, " ", StateText(each)));
  }
  return absl::StrCat("workers ", connected, " of ", state.workers.size(), " connected  slots ", in_use,
                      " of ", slots, " in use  jobs ", counts.empty() ? "none" : absl::StrJoin(counts, ", "),
                      // Without the rates of all jobs, the sum says nothing about the cluster.
                      tokens_per_second > 0 && state.reports.size() == JobsWithReports(state).size()
                          ? absl::StrCat("  ", RateText(tokens_per_second), " tokens/s")
                          : "");
}

std::string EtaText(const v1::Job& job, const v1::StepReport& report) {
  const int64_t left = job.resolved().training().steps() - report.step();
  return left > 0 && report.seconds() > 0
             ? ClockText(absl::Seconds(report.seconds() * static_cast<double>(left)))
             : "";
}

}  // namespace

std::vector<std::string> JobsWithReports(const TopState& state) {
  std::vector<std::string> ids;
  for (const v1::Job* job : InOrder(state.jobs)) {
    if (job->state() != v1::JOB_STATE_QUEUED && job->last_step() > 0) {
      ids.push_back(job->id());
    }
  }
  return ids;
}

std::string RenderTop(const TopState& state, const TerminalSize& size, bool unicode, absl::Time now) {
  Table table({Shrinking("JOB"), "STATE", Right("STEP"), Right("LOSS"), Right("TOKENS/S"), Right("STEP TIME"),
               Right("ETA"), Right("RANKS"), Right("AGE"), Shrinking("NOTE")});
  for (const v1::Job* job : InOrder(state.jobs)) {
    const int64_t total = job->resolved().training().steps();
    std::vector<std::string> row = {job->name(),
                                    StateText(job->state()),
                                    job->last_step() > 0 ? absl::StrCat(job->last_step(), "/", total) : "",
                                    "",
                                    "",
                                    "",
                                    "",
                                    absl::StrCat(job->resolved().parallelism().ranks()),
                                    AgeText(job->created(), now),
                                    job->progress().stalled() ? "stalled: " + job->progress().whereabouts()
                                    : job->state() == v1::JOB_STATE_RUNNING ? ""
                                                                            : job->reason()};
    if (const auto it = state.reports.find(job->id()); it != state.reports.end()) {
      const v1::StepReport& report = it->second;
      row[2] = absl::StrCat(report.step(), "/", total);
      row[3] = LossText(report.loss());
      row[4] = report.seconds() > 0 ? RateText(static_cast<double>(report.tokens()) / report.seconds()) : "";
      row[5] = StepTimeText(report.seconds());
      row[6] = EtaText(*job, report);
    }
    table.Add(std::move(row));
  }
  const std::string summary = Summary(state);
  std::string text = absl::StrCat(size.columns > 0 ? Cut(summary, size.columns, unicode) : summary, "\n");
  if (!state.jobs.empty()) {
    absl::StrAppend(&text, "\n", table.Render(size.columns, unicode));
  }
  if (size.rows > 2) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
    const auto most = static_cast<size_t>(size.rows - 2);
    if (lines.size() > most) {
      const std::string rest =
          absl::StrCat("and ", lines.size() - most, " more; `tandem get jobs` lists all");
      text = absl::StrCat(absl::StrJoin(lines.begin(), lines.begin() + static_cast<long>(most), "\n"), "\n",
                          size.columns > 0 ? Cut(rest, size.columns, unicode) : rest, "\n");
    }
  }
  return text;
}

}  // namespace tandem::cli
