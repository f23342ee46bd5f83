// SPDX-License-Identifier: Apache-2.0
#include "worker/instruction_names.h"

#include "absl/strings/str_cat.h"

namespace tandem::worker {

void InstructionNames::Add(const std::string& what, const std::string& act, int microbatch) {
  const auto [kind, added] = kind_of_.try_emplace(what, static_cast<int32_t>(kinds_.size()));
  if (added) {
    kinds_.push_back({.what = what, .act = act});
  }
  entries_.push_back({.kind = kind->second, .microbatch = microbatch});
}

std::string InstructionNames::Text(int64_t index) const {
  const Entry& entry = entries_.at(static_cast<size_t>(index));
  const Kind& kind = kinds_[static_cast<size_t>(entry.kind)];
  return entry.microbatch < 0 ? kind.what : absl::StrCat(kind.what, " mb ", entry.microbatch);
}

std::string InstructionNames::Phrase(int64_t index) const {
  const Entry& entry = entries_.at(static_cast<size_t>(index));
  const Kind& kind = kinds_[static_cast<size_t>(entry.kind)];
  return entry.microbatch < 0 ? kind.what : absl::StrCat(kind.act, " of microbatch ", entry.microbatch);
}

}  // namespace tandem::worker
