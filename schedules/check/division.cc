// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "schedules/check/rules.h"

namespace tandem::schedules {
namespace {

bool IsSameNode(const Stage& stage, Node part, const Node& whole) {
  Renumber(stage.origin.values, stage.origin.units, stage.origin.states, part);
  return part.name == whole.name && part.group == whole.group && part.purpose == whole.purpose &&
         part.forward == whole.forward && part.backward_input == whole.backward_input &&
         part.backward_weight == whole.backward_weight;
}

bool IsSameState(const Stage& stage, const NodeState& part, const NodeState& whole) {
  return part.bytes == whole.bytes &&
         (part.counter < 0 ? -1 : stage.origin.states[part.counter]) == whole.counter;
}

bool IsSameUnit(const Stage&, const Unit& part, const Unit& whole) {
  return part.group == whole.group && part.frozen == whole.frozen && part.classes == whole.classes &&
         part.parts.size() == whole.parts.size();
}

// Each of `whole` is one of the parts' once; is_same(stage, part, whole) says whether they are declared
// alike.
template <typename T, typename IsSame>
absl::Status CheckOnce(absl::Span<const Stage> stages, const std::vector<T>& whole,
                       std::vector<T> Outline::*things, std::vector<int> Origin::*numbers,
                       const IsSame& is_same) {
  std::vector<int> counts(whole.size(), 0);
  for (const Stage& stage : stages) {
    const std::vector<T>& parts = stage.outline.*things;
    const std::vector<int>& origins = stage.origin.*numbers;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i >= origins.size() || origins[i] < 0 || origins[i] >= static_cast<int>(whole.size())) {
        return absl::InvalidArgumentError(absl::StrCat("meant: stage ", stage.outline.stage, ": ",
                                                       parts[i].name, " is not in the undivided outline"));
      }
      if (!is_same(stage, parts[i], whole[origins[i]])) {
        return absl::InvalidArgumentError(
            absl::StrCat("meant: stage ", stage.outline.stage, ": ", parts[i].name,
                         " is declared otherwise than in the undivided outline"));
      }
      ++counts[origins[i]];
    }
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    if (counts[i] != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("meant: ", counts[i] == 0 ? "no stage has " : absl::StrCat(counts[i], " stages have "),
                       whole[i].name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDivision(const Outline& undivided, absl::Span<const Stage> stages) {
  TANDEM_RETURN_IF_ERROR(CheckOnce(stages, undivided.nodes, &Outline::nodes, &Origin::nodes, IsSameNode));
  TANDEM_RETURN_IF_ERROR(CheckOnce(stages, undivided.states, &Outline::states, &Origin::states, IsSameState));
  return CheckOnce(stages, undivided.units, &Outline::units, &Origin::units, IsSameUnit);
}

}  // namespace tandem::schedules
