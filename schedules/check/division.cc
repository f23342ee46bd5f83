// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "schedules/check/rules.h"

namespace tandem::schedules {
namespace {

// Whether the numbers of a stage are those of the undivided outline.
class SameNumbers {
 public:
  explicit SameNumbers(const Origin& origin) : origin_(origin) {}

  bool Node(const schedules::Node& part, const schedules::Node& whole) const {
    return part.name == whole.name && part.group == whole.group && part.purpose == whole.purpose &&
           Pass(part.forward, whole.forward) && Pass(part.backward_input, whole.backward_input) &&
           Pass(part.backward_weight, whole.backward_weight);
  }
  bool State(const NodeState& part, const NodeState& whole) const {
    return part.bytes == whole.bytes &&
           (part.counter < 0 ? -1 : origin_.states[part.counter]) == whole.counter;
  }

 private:
  bool Pass(const Access& part, const Access& whole) const {
    return Values(part.reads, whole.reads) && Values(part.writes, whole.writes) &&
           Values(part.gradient_reads, whole.gradient_reads) &&
           Values(part.gradient_writes, whole.gradient_writes) && Parts(part.parameters, whole.parameters) &&
           Parts(part.parameter_gradients, whole.parameter_gradients) &&
           States(part.state_reads, whole.state_reads) && States(part.state_adds, whole.state_adds) &&
           States(part.state_carries, whole.state_carries) &&
           part.sums_parameter_gradients == whole.sums_parameter_gradients &&
           part.reads_inputs == whole.reads_inputs;
  }
  bool Values(const std::vector<ValueId>& part, const std::vector<ValueId>& whole) const {
    return std::equal(part.begin(), part.end(), whole.begin(), whole.end(),
                      [&](ValueId p, ValueId w) { return origin_.values[p] == w; });
  }
  bool States(const std::vector<StateId>& part, const std::vector<StateId>& whole) const {
    return std::equal(part.begin(), part.end(), whole.begin(), whole.end(),
                      [&](StateId p, StateId w) { return origin_.states[p] == w; });
  }
  bool Parts(const std::vector<UnitPart>& part, const std::vector<UnitPart>& whole) const {
    return std::equal(part.begin(), part.end(), whole.begin(), whole.end(), [&](UnitPart p, UnitPart w) {
      return origin_.units[p.unit] == w.unit && p.part == w.part;
    });
  }

  const Origin& origin_;
};

bool IsSameUnit(const Unit& part, const Unit& whole) {
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
  TANDEM_RETURN_IF_ERROR(CheckOnce(stages, undivided.nodes, &Outline::nodes, &Origin::nodes,
                                   [](const Stage& stage, const Node& part, const Node& whole) {
                                     return SameNumbers(stage.origin).Node(part, whole);
                                   }));
  TANDEM_RETURN_IF_ERROR(CheckOnce(stages, undivided.states, &Outline::states, &Origin::states,
                                   [](const Stage& stage, const NodeState& part, const NodeState& whole) {
                                     return SameNumbers(stage.origin).State(part, whole);
                                   }));
  return CheckOnce(stages, undivided.units, &Outline::units, &Origin::units,
                   [](const Stage&, const Unit& part, const Unit& whole) { return IsSameUnit(part, whole); });
}

}  // namespace tandem::schedules
