// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

constexpr size_t kMostNameBytes = 100;  // a report's scalar has it behind a word
constexpr int kMostSets = 100;          // each has a loss in reports, whose scalars are bounded

// Of the entries of one list. first: where a name stands for the first time, in that list.
template <typename Text>
void CheckText(FieldChecker& check, const std::string& at, const Text& text,
               std::map<std::string, std::string>& first) {
  const std::string path = JoinPath(at, "path");
  const std::string name = JoinPath(at, "name");
  if (text.has_name()) {
    const auto [found, fresh] = first.emplace(text.name(), at);
    const bool is_written = check.IsWritten(name);
    if (text.name().empty() || text.name().size() > kMostNameBytes ||
        text.name().find('/') != std::string::npos) {
      check.Refuse(is_written ? name : path,
                   is_written ? "use a short name without /"
                              : "its last part cannot be its name (1 to 100 characters): give name");
    } else if (!fresh && check.IsOk({path})) {
      check.Refuse(name, text.name(), "a name that no other entry has",
                   absl::StrCat(is_written ? "" : "the last part of the path is the name: ", found->second,
                                " has it too: give each a name of its own"));
    }
  }
  if (text.format() == v1::DATA_FORMAT_FLAT && !text.has_token_type()) {
    check.Refuse(JoinPath(at, "token_type"),
                 "files of format: flat do not say the type of their numbers: give it");
  }
  if (text.has_token_type() && text.format() != v1::DATA_FORMAT_FLAT) {
    check.Forbid(JoinPath(at, "token_type"),
                 "files of every format but flat say the type of their numbers: omit it");
  }
}

template <typename Texts>
void CheckTexts(FieldChecker& check, const char* list, const Texts& texts) {
  std::map<std::string, std::string> first;
  for (int i = 0; i < texts.size(); ++i) {
    CheckText(check, EntryPath(list, i), texts[i], first);
  }
}

void CheckSources(FieldChecker& check) {
  constexpr char kSources[] = "data.sources";
  const v1::Data& data = check.spec().data();
  if (data.has_train() && !data.sources().empty()) {
    check.Forbid(kSources, "data.train is given too: omit one of the two");
    return;
  }
  const bool holds_out = !data.has_validation() && data.validation_sets().empty() &&
                         data.validation_fraction() > 0 && check.spec().training().validate_every_steps() > 0;
  if (holds_out && data.sources_size() > kMostSets) {
    check.Refuse(kSources, absl::StrCat("a list of ", data.sources_size(), " entries"),
                 absl::StrCat("1 to ", kMostSets, " entries where the end of each is held out"),
                 "each end has a loss in reports: name text to validate on with data.validation, or use "
                 "data.validation_fraction: 0");
  }
  CheckTexts(check, kSources, data.sources());
  const auto is_weighted = [](const v1::DataSource& source) { return source.has_weight(); };
  const bool some = std::any_of(data.sources().begin(), data.sources().end(), is_weighted);
  for (int i = 0; some && i < data.sources_size(); ++i) {
    if (!data.sources(i).has_weight()) {
      check.Refuse(JoinPath(EntryPath(kSources, i), "weight"),
                   "other sources have a weight: give each one, or none");
    }
  }
}

void CheckValidationSets(FieldChecker& check) {
  constexpr char kSets[] = "data.validation_sets";
  const v1::Data& data = check.spec().data();
  if (data.validation_sets().empty()) {
    return;
  }
  if (data.validation_sets_size() > kMostSets) {
    check.Refuse(kSets, absl::StrCat("a list of ", data.validation_sets_size(), " entries"),
                 absl::StrCat("1 to ", kMostSets, " entries"), "write fewer");
    return;
  }
  if (data.has_validation()) {
    check.Forbid(kSets, "data.validation is given too: omit one of the two");
  }
  if (data.has_validation_fraction()) {
    check.Forbid("data.validation_fraction", "data.validation_sets is given too: omit one of the two");
  }
  CheckTexts(check, kSets, data.validation_sets());
}

}  // namespace

void CheckData(FieldChecker& check) {
  const v1::Data& data = check.spec().data();
  if (data.has_validation() && data.has_validation_fraction()) {
    check.Forbid("data.validation_fraction", "data.validation is given too: omit one of the two");
  }
  CheckSources(check);
  CheckValidationSets(check);
  if (data.has_end_of_document() && data.documents() == v1::DOCUMENTS_STREAM &&
      check.IsOk({"data.documents", "data.end_of_document"})) {
    check.Forbid("data.end_of_document",
                 absl::StrCat("documents: stream", check.Origin("data.documents"),
                              " does not tell documents apart: use documents: packed, or omit the key"));
  }
  if (data.tokenizer() != "auto" && data.tokenizer() != "bytes") {
    check.Refuse(
        "data.tokenizer",
        "text becomes tokens before a job: run tandem data prepare with that tokenizer, give the folder "
        "that it makes as data.train, and omit the key");
  }
}

}  // namespace tandem::jobspec
