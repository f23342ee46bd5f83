// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/job_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"
#include "platform/signal_name.h"
#include "proto/time.h"

namespace tandem::cli {

std::string FailedSavesText(const v1::CheckpointRecord& record) {
  if (record.failed() == 0) {
    return "";
  }
  std::string text = absl::StrCat(record.failed(), " of ", record.saved() + record.failed(), " failed");
  if (record.failed_in_a_row() > 1) {
    absl::StrAppend(&text, ", the last ", record.failed_in_a_row(), " in a row");
  } else if (record.failed_in_a_row() == 0) {
    absl::StrAppend(&text, ", the newest was saved");
  }
  return absl::StrCat(text, "; step ", record.last_failure().step(), ": ",
                      Escape(record.last_failure().message()));
}

std::vector<std::string> CheckpointWarnings(const v1::CheckpointRecord& record) {
  std::vector<std::string> warnings;
  if (record.failed_in_a_row() > 0) {
    warnings.push_back(absl::StrCat(
        record.failed_in_a_row() == 1 ? "the newest checkpoint"
                                      : absl::StrCat("the last ", record.failed_in_a_row(), " checkpoints"),
        " failed, at step ", record.last_failure().step(), ": ", Escape(record.last_failure().message())));
  }
  for (const v1::CheckpointWarning& warning : record.resume()) {
    warnings.push_back(Escape(warning.message()));
  }
  return warnings;
}

std::vector<v1::CheckpointCommitted> KeptCheckpoints(const std::vector<v1::Event>& events) {
  std::vector<v1::CheckpointCommitted> kept;
  for (const v1::Event& event : events) {
    if (!event.has_checkpoint()) {
      continue;
    }
    const v1::CheckpointCommitted& saved = event.checkpoint();
    std::erase_if(kept, [&](const v1::CheckpointCommitted& earlier) {
      return earlier.step() == saved.step() ||
             std::find(saved.removed_steps().begin(), saved.removed_steps().end(), earlier.step()) !=
                 saved.removed_steps().end();
    });
    kept.push_back(saved);
  }
  return kept;
}

std::string BehindText(const v1::Progress& progress) {
  const std::string where = Escape(progress.whereabouts());
  return absl::StrCat("rank ", progress.rank(), " on worker ", Escape(progress.worker()),
                      progress.stopped() ? " is stopped, by a signal or a debugger" : " is behind",
                      where.empty() ? "" : ", ", where);
}

std::string ProgressText(const v1::Progress& progress) {
  const std::string age = SpanText(proto::FromProto(progress.age()));
  return progress.stalled() ? absl::StrCat("none for ", age, ": ", BehindText(progress))
                            : absl::StrCat(age, " ago");
}

std::string TimeAccountText(const v1::TimeAccount& time) {
  if (time.total() <= 0) {
    return "";
  }
  std::vector<std::pair<double, std::string>> parts = {
      {time.stepping(), "in steps"},          {time.waiting(), "waiting"}, {time.starting(), "starting"},
      {time.checkpoints(), "in checkpoints"}, {time.lost(), "lost"},       {time.other(), "other"}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [seconds, what] : parts) {
    if (seconds / time.total() >= 0.005) {
      texts.push_back(absl::StrFormat("%.0f %% %s", 100 * seconds / time.total(), what));
    }
  }
  return absl::StrCat(SpanText(absl::Seconds(time.total())), ", of it ", absl::StrJoin(texts, ", "));
}

namespace {

// Returns the message as a sentence, with `place` in brackets behind it.
std::string Sentence(const v1::Cause& cause, const std::vector<std::string>& place = {}) {
  std::string text = Escape(cause.message());
  text[0] = absl::ascii_toupper(text[0]);
  if (absl::EndsWith(text, ".")) {
    text.pop_back();
  }
  return absl::StrCat(text, place.empty() ? "" : " (", absl::StrJoin(place, ", "),
                      place.empty() ? "." : ").");
}

// Adds the place to a worker's message that is already a sentence about the rank.
std::string WithPlace(const v1::Cause& cause) {
  std::vector<std::string> place;
  if (!cause.worker().empty()) {
    place.push_back(absl::StrCat("worker ", Escape(cause.worker())));
  }
  if (!cause.instruction().empty()) {
    place.push_back(absl::StrCat("in \"", Escape(cause.instruction()), "\""));
  }
  if (!cause.last_instruction().empty()) {
    place.push_back(absl::StrCat("the last to finish was \"", Escape(cause.last_instruction()), "\""));
  }
  return Sentence(cause, place);
}

}  // namespace

std::string CauseText(const v1::Cause& cause) {
  if (cause.has_rank() &&
      absl::StartsWithIgnoreCase(cause.message(), absl::StrCat("rank ", cause.rank(), " "))) {
    return WithPlace(cause);
  }
  if (!cause.has_rank() && !cause.worker().empty() &&
      absl::StartsWithIgnoreCase(cause.message(), absl::StrCat("worker ", cause.worker(), " "))) {
    return Sentence(cause);
  }
  if (cause.class_() == v1::FAILURE_CLASS_NUMERIC && !cause.message().empty()) {
    return Sentence(cause);  // all ranks compute the same norm, so no rank is to blame
  }
  std::string who;
  if (cause.has_rank()) {
    who = absl::StrCat("rank ", cause.rank());
    if (!cause.worker().empty()) {
      absl::StrAppend(&who, " on worker ", Escape(cause.worker()));
    }
  } else if (!cause.worker().empty()) {
    who = absl::StrCat("worker ", Escape(cause.worker()));
  }
  std::string did;
  if (cause.signal() != 0) {
    did = absl::StrCat("was killed by signal ", cause.signal(), " (", platform::SignalName(cause.signal()),
                       ")");
  } else if (cause.has_exit_code()) {
    did = absl::StrCat("ended with exit code ", cause.exit_code());
  } else if (!who.empty()) {
    did = "failed";
  }
  std::string where;
  if (cause.step() > 0) {
    absl::StrAppend(&where, " at step ", cause.step());
  }
  if (!cause.instruction().empty()) {
    absl::StrAppend(&where, " in \"", Escape(cause.instruction()), "\"");
  }
  if (!cause.last_instruction().empty()) {
    absl::StrAppend(&where, " after \"", Escape(cause.last_instruction()), "\"");
  }
  if (!cause.group().empty()) {
    absl::StrAppend(&where, " in group ", Escape(cause.group()));
  }
  std::string text;
  if (!who.empty()) {
    text = absl::StrCat(who, " ", did, where);
  } else if (!where.empty()) {
    text = absl::StrCat("it failed", where);
  }
  if (!cause.message().empty()) {
    absl::StrAppend(&text, text.empty() ? "" : ": ", Escape(cause.message()));
  }
  // The message about a lost worker or a late start names the ranks itself.
  if (cause.class_() == v1::FAILURE_CLASS_PEER_LOST && cause.missing_ranks_size() > 0) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", cause.missing_ranks_size() == 1 ? "rank " : "ranks ",
                    absl::StrJoin(cause.missing_ranks(), ", "), " had not arrived");
  }
  if (text.empty()) {
    return "";
  }
  text[0] = absl::ascii_toupper(text[0]);
  return absl::StrCat(text, absl::EndsWith(text, ".") ? "" : ".");
}

}  // namespace tandem::cli
