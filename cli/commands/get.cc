// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "platform/status_macros.h"
#include "proto/time.h"

namespace tandem::cli {
namespace {

// Whether `word` is among `words`, in upper or lower case.
bool IsAny(absl::string_view word, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& each) { return absl::EqualsIgnoreCase(word, each); });
}

std::string ProgressText(const v1::Job& job) {
  const int64_t total = job.resolved().training().steps();
  return total > 0 ? absl::StrCat(job.last_step(), "/", total) : absl::StrCat(job.last_step());
}

// `none`: what a table says if there are no messages.
template <typename Message, typename AddRow>
void Print(Context& context, Format format, const std::vector<Message>& messages, Table table,
           absl::string_view none, const AddRow& add_row) {
  if (format == Format::kJson) {
    context.Print(ToJsonList(messages));
    return;
  }
  if (format == Format::kYaml) {
    context.Print(ToYamlList(messages));
    return;
  }
  if (format == Format::kName) {
    for (const Message& message : messages) {
      context.Print(absl::StrCat(message.id(), "\n"));
    }
    return;
  }
  if (messages.empty()) {
    Note(context.console, none);
    return;
  }
  for (const Message& message : messages) {
    add_row(table, message);
  }
  context.Print(table);
}

// Requires StateNames(), in upper or lower case.
std::vector<v1::JobState> StatesOf(const std::vector<std::string>& names) {
  std::vector<v1::JobState> states(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    v1::JobState_Parse("JOB_STATE_" + absl::AsciiStrToUpper(names[i]), &states[i]);
  }
  return states;
}

}  // namespace

Outcome GetJobs(Context& context, Client& client, const GetJobsOptions& options) {
  const bool whole = options.format == Format::kJson || options.format == Format::kYaml;
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs,
                          client.ListJobs(StatesOf(options.states), /*brief=*/!whole));
  if (!options.reasons.empty()) {
    std::erase_if(jobs, [&](const v1::Job& job) { return !IsAny(job.reason(), options.reasons); });
  }
  const bool all = options.states.empty() && options.reasons.empty();
  Table table({Shrinking("NAME"), "ID", "STATE", Right("STEP"), Right("RANKS"), Right("PROGRESS"),
               Right("AGE"), Shrinking("REASON")});
  Print(
      context, options.format, jobs, std::move(table), all ? "there are no jobs" : "no job matches",
      [&](Table& rows, const v1::Job& job) {
        rows.Add(
            {job.name(), job.id(), StateText(job.state()), ProgressText(job),
             absl::StrCat(job.resolved().parallelism().ranks()),
             job.has_progress() ? absl::StrCat(SpanText(proto::FromProto(job.progress().age())), " ago") : "",
             AgeText(job.created(), context.clock.Now()),
             job.progress().stalled() ? BehindText(job.progress()) : job.reason()});
      });
  return kOk;
}

namespace {

// Why a schedulable worker offers no GPU; empty if it does, or has none.
std::string UnusedText(const v1::Worker& worker) {
  return worker.gpus_unused().empty() ? "" : absl::StrCat("no GPU offered: ", worker.gpus_unused());
}

}  // namespace

Outcome GetWorkers(Context& context, Client& client, const GetOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
  Table table({Shrinking("ID"), Shrinking("HOST"), "CONNECTED", Right("SLOTS"), Right("IN USE"), "DEVICE",
               Shrinking("REASON")});
  Print(
      context, options.format, workers, std::move(table), "there are no workers",
      [&](Table& rows, const v1::Worker& worker) {
        const std::string seen = IsSet(worker.last_seen())
                                     ? absl::StrCat("no, ", AgeText(worker.last_seen(), context.clock.Now()))
                                     : "no";
        rows.Add({worker.id(), worker.hostname(), worker.connected() ? "yes" : seen,
                  absl::StrCat(worker.slots()), absl::StrCat(worker.slots_in_use()),
                  DeviceText(worker.device()), worker.schedulable() ? UnusedText(worker) : worker.reason()});
      });
  return kOk;
}

}  // namespace tandem::cli
