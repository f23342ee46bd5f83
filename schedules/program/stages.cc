// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/stages.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::schedules {
namespace {

constexpr int kNone = -1;
constexpr int kSeveral = -2;

// The stages that use one thing: none, one, or several.
void Use(int& stage, int by) { stage = stage == kNone || stage == by ? by : kSeveral; }

void Join(int& stage, int other) {
  if (other != kNone) {
    Use(stage, other);
  }
}

// Numbers of `undivided` to those of a stage.
struct Numbers {
  std::vector<int> of_stage;     // -1: the stage does not have it
  std::vector<int>& of_outline;  // the other way

  void Add(int number) {
    of_stage[number] = static_cast<int>(of_outline.size());
    of_outline.push_back(number);
  }
};

// `owners` are the stages that use each of `all`, which must be one at most.
template <typename T>
absl::Status CheckOwners(const std::vector<T>& all, const std::vector<int>& owners) {
  const auto several = std::find(owners.begin(), owners.end(), kSeveral);
  return several == owners.end()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat(
                   "several stages use ", all[several - owners.begin()].name, "; give it to one"));
}

class Divider {
 public:
  Divider(const Outline& outline, absl::Span<const int> chunk_of, int num_stages)
      : outline_(outline),
        chunk_of_(chunk_of),
        num_stages_(num_stages),
        makers_(outline.values.size(), kNone),
        readers_(outline.values.size(), kNone),
        gradients_(outline.values.size(), kNone),
        units_(outline.units.size(), kNone),
        states_(outline.states.size(), kNone) {
    for (size_t n = 0; n < outline.nodes.size(); ++n) {
      const Node& node = outline.nodes[n];
      for (const Access* access : {&node.forward, &node.backward_input, &node.backward_weight}) {
        Count(*access, StageOf(n));
      }
    }
    for (size_t s = 0; s < states_.size(); ++s) {
      if (const StateId counter = outline.states[s].counter; counter >= 0) {
        const int state = states_[s];
        Join(states_[s], states_[counter]);
        Join(states_[counter], state);
      }
    }
  }

  absl::StatusOr<std::vector<Stage>> Run() const {
    TANDEM_RETURN_IF_ERROR(CheckOwners(outline_.units, units_));
    TANDEM_RETURN_IF_ERROR(CheckOwners(outline_.states, states_));
    for (ValueId value = 0; value < static_cast<int>(outline_.values.size()); ++value) {
      if (!Crosses(value)) {
        continue;
      }
      const std::string& name = outline_.values[value].name;
      if (readers_[value] == kSeveral) {
        return absl::InvalidArgumentError(absl::StrCat("several other stages read ", name));
      }
      if (outline_.values[value].kind == ValueKind::kHost) {
        return absl::InvalidArgumentError(
            absl::StrCat("the host reads ", name, ", and so does another stage"));
      }
      if (gradients_[value] != readers_[value]) {
        return absl::InvalidArgumentError(
            absl::StrCat("stage ", readers_[value], " reads ", name, ", and has no gradient for it"));
      }
    }
    std::vector<Stage> stages;
    for (int stage = 0; stage < num_stages_; ++stage) {
      stages.push_back(Part(stage));
    }
    return stages;
  }

 private:
  int StageOf(size_t node) const { return chunk_of_[node] % num_stages_; }

  // Reads and gradients are those of stages other than the value's own, which comes first.
  void Count(const Access& access, int stage) {
    for (const ValueId value : access.writes) {
      makers_[value] = makers_[value] == kNone ? stage : makers_[value];
    }
    for (const ValueId value : access.reads) {
      if (value != outline_.batch && makers_[value] != stage) {
        Use(readers_[value], stage);
      }
    }
    for (const ValueId value : access.gradient_writes) {
      if (makers_[value] != stage) {
        Use(gradients_[value], stage);
      }
    }
    for (const auto* parts : {&access.parameters, &access.parameter_gradients}) {
      for (const UnitPart& part : *parts) {
        Use(units_[part.unit], stage);
      }
    }
    for (const auto* states : {&access.state_reads, &access.state_adds, &access.state_carries}) {
      for (const StateId state : *states) {
        Use(states_[state], stage);
      }
    }
  }

  bool Crosses(ValueId value) const { return readers_[value] != kNone && makers_[value] != kNone; }

  static bool IsIn(const std::vector<ValueId>& values, ValueId value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  }

  // The stage reads, writes or has a gradient of it.
  bool Touches(int stage, ValueId value) const {
    for (size_t n = 0; n < outline_.nodes.size(); ++n) {
      const Node& node = outline_.nodes[n];
      for (const Access* access : {&node.forward, &node.backward_input, &node.backward_weight}) {
        if (StageOf(n) == stage &&
            (IsIn(access->reads, value) || IsIn(access->writes, value) ||
             IsIn(access->gradient_reads, value) || IsIn(access->gradient_writes, value))) {
          return true;
        }
      }
    }
    return false;
  }

  // The chunk of that stage whose forward makes the value, or reads it.
  int ChunkOf(int stage, ValueId value) const {
    for (size_t n = 0; n < outline_.nodes.size(); ++n) {
      const Access& access = outline_.nodes[n].forward;
      if (StageOf(n) == stage && (IsIn(access.writes, value) || IsIn(access.reads, value))) {
        return chunk_of_[n] / num_stages_;
      }
    }
    return 0;
  }

  Stage Part(int number) const {
    Stage stage{.outline = {.stage = number}};
    Outline& part = stage.outline;
    Numbers values{std::vector<int>(outline_.values.size(), -1), stage.origin.values};
    Numbers units{std::vector<int>(outline_.units.size(), -1), stage.origin.units};
    Numbers states{std::vector<int>(outline_.states.size(), -1), stage.origin.states};
    for (ValueId value = 0; value < static_cast<int>(outline_.values.size()); ++value) {
      if (Touches(number, value)) {
        values.Add(value);
        part.values.push_back(outline_.values[value]);
      }
    }
    const auto is_here = [&](int owner) { return owner == number || (owner == kNone && number == 0); };
    for (UnitId unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      if (is_here(units_[unit])) {
        units.Add(unit);
        part.units.push_back(outline_.units[unit]);
      }
    }
    for (StateId state = 0; state < static_cast<int>(states_.size()); ++state) {
      if (is_here(states_[state])) {
        states.Add(state);
        part.states.push_back(outline_.states[state]);
      }
    }
    for (NodeState& state : part.states) {
      state.counter = state.counter < 0 ? -1 : states.of_stage[state.counter];
    }
    for (NodeId n = 0; n < static_cast<int>(outline_.nodes.size()); ++n) {
      if (StageOf(n) != number) {
        continue;
      }
      stage.origin.nodes.push_back(n);
      part.nodes.push_back(outline_.nodes[n]);
      part.nodes.back().chunk = chunk_of_[n] / num_stages_;
      Renumber(values.of_stage, units.of_stage, states.of_stage, part.nodes.back());
    }
    part.batch = outline_.batch < 0 ? -1 : values.of_stage[outline_.batch];
    for (const ValueId loss : outline_.losses) {
      if (makers_[loss] == number) {
        part.losses.push_back(values.of_stage[loss]);
      }
    }
    for (const ValueId value : stage.origin.values) {
      if (Crosses(value) && makers_[value] == number) {
        part.sent.push_back({values.of_stage[value], readers_[value], ChunkOf(number, value)});
      } else if (Crosses(value)) {
        part.received.push_back({values.of_stage[value], makers_[value], ChunkOf(number, value)});
      }
    }
    return stage;
  }

  const Outline& outline_;
  const absl::Span<const int> chunk_of_;
  const int num_stages_;
  std::vector<int> makers_;     // by value: the stage that writes it first
  std::vector<int> readers_;    // by value: the other stages that read it
  std::vector<int> gradients_;  // by value: the other stages that write its gradient
  std::vector<int> units_;      // by unit: the stages that use it
  std::vector<int> states_;     // by state
};

std::vector<int> Everything(size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Those of `all` with these numbers; none if there are none.
template <typename T>
std::vector<T> Selected(const std::vector<T>& all, const std::vector<int>& numbers) {
  std::vector<T> selected;
  for (const int number : numbers) {
    if (!all.empty()) {
      selected.push_back(all[number]);
    }
  }
  return selected;
}

}  // namespace

void Renumber(const std::vector<ValueId>& values, const std::vector<UnitId>& units,
              const std::vector<StateId>& states, Node& node) {
  const auto renumber = [](const std::vector<int>& numbers, std::vector<int>& ids) {
    for (int& id : ids) {
      id = numbers[id];
    }
  };
  for (Access* access : {&node.forward, &node.backward_input, &node.backward_weight}) {
    for (auto* ids : {&access->reads, &access->writes, &access->gradient_reads, &access->gradient_writes}) {
      renumber(values, *ids);
    }
    for (auto* ids : {&access->state_reads, &access->state_adds, &access->state_carries}) {
      renumber(states, *ids);
    }
    for (auto* parts : {&access->parameters, &access->parameter_gradients}) {
      for (UnitPart& part : *parts) {
        part.unit = units[part.unit];
      }
    }
  }
}

Stage OnlyStage(Outline outline) {
  Origin origin{Everything(outline.nodes.size()), Everything(outline.values.size()),
                Everything(outline.units.size()), Everything(outline.states.size())};
  return {std::move(outline), std::move(origin)};
}

absl::StatusOr<std::vector<Stage>> DivideIntoStages(const Outline& undivided, absl::Span<const int> chunk_of,
                                                    int num_stages) {
  return Divider(undivided, chunk_of, num_stages).Run();
}

BuildOptions OptionsOf(const BuildOptions& undivided, const Origin& origin) {
  BuildOptions options = undivided;
  options.units = Selected(undivided.units, origin.units);
  options.keep_gathered = Selected(undivided.keep_gathered, origin.units);
  options.recompute = Selected(undivided.recompute, origin.values);
  options.replayed = Selected(undivided.replayed, origin.nodes);
  return options;
}

}  // namespace tandem::schedules
