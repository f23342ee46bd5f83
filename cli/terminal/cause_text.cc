// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/cause_text.h"

#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/message_text.h"
#include "platform/signal_name.h"

namespace tandem::cli {

namespace {

// The message as a sentence, `place` in brackets behind it.
std::string Sentence(const v1::Cause& cause, const std::vector<std::string>& place = {}) {
  std::string text = Escape(cause.message());
  text[0] = absl::ascii_toupper(text[0]);
  if (absl::EndsWith(text, ".")) {
    text.pop_back();
  }
  return absl::StrCat(text, place.empty() ? "" : " (", absl::StrJoin(place, ", "),
                      place.empty() ? "." : ").");
}

// A worker's message that is a sentence about the rank already: only the place is missing.
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
  if (cause.class_() == v1::FAILURE_CLASS_NUMERIC && !cause.message().empty()) {
    return Sentence(cause);  // all ranks compute the same norm: it is not the fault of the one that is named
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
  if (cause.missing_ranks_size() > 0) {
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
