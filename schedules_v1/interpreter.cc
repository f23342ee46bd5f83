#include "schedules_v1/interpreter.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules_v1/interpreter_run.h"

namespace tandem::schedules_v1 {

using Event = InterpreterRun::Event;

Interpreter::Interpreter(const Outline& outline, std::vector<std::vector<const Program*>> ranks)
    : interpreted_{.outline = outline, .programs = std::move(ranks)} {
  for (const std::vector<const Program*>& programs : interpreted_.programs) {
    interpreted_.placements.emplace_back();
    std::map<const Program*, const Placement*> placed;
    for (const Program* program : programs) {
      const Placement*& placement = placed[program];
      if (placement == nullptr) {
        owned_.push_back(std::make_unique<Placement>(outline, programs, *program));
        placement = owned_.back().get();
      }
      interpreted_.placements.back().push_back(placement);
    }
  }
  for (const Unit& unit : outline.units) {
    interpreted_.contributed.emplace_back(unit.parts.size(), false);
  }
  for (const Node& node : outline.nodes) {
    for (const UnitPart& part : node.backward.parameter_gradients) {
      interpreted_.contributed[part.unit][part.part] = true;
    }
  }
}

RunResult Interpreter::RunInIssueOrder() const {
  InterpreterRun run(interpreted_);
  return run.Finish([&](const std::vector<Event>& events) {
    int best = 0;
    for (int k = 0; k < static_cast<int>(events.size()); ++k) {
      if (events[k].finish) {
        return k;
      }
      if (run.InstructionOf(events[k]) < run.InstructionOf(events[best])) {
        best = k;
      }
    }
    return best;
  });
}

RunResult Interpreter::RunAnyOrder(uint64_t seed) const {
  InterpreterRun run(interpreted_);
  std::mt19937_64 random(seed);
  return run.Finish(
      [&](const std::vector<Event>& events) { return static_cast<int>(random() % events.size()); });
}

std::vector<Interpreter::Pair> Interpreter::UnorderedPairs() const {
  std::vector<Pair> pairs;
  for (int r = 0; r < static_cast<int>(interpreted_.programs.size()); ++r) {
    for (int position = 0; position < static_cast<int>(interpreted_.programs[r].size()); ++position) {
      const auto begin = interpreted_.programs[r].begin();
      if (std::find(begin, begin + position, interpreted_.programs[r][position]) == begin + position) {
        for (const UnorderedPair& pair : interpreted_.placements[r][position]->unordered()) {
          pairs.push_back({r, position, pair});
        }
      }
    }
  }
  return pairs;
}

RunResult Interpreter::RunAtOnce(const Pair& pair, uint64_t seed) const {
  InterpreterRun run(interpreted_);
  std::mt19937_64 random(seed);
  bool together = false;  // both are let go, and start before anything finishes
  return run.Finish([&](const std::vector<Event>& events) {
    std::vector<int> others;
    std::vector<int> held;
    for (int k = 0; k < static_cast<int>(events.size()); ++k) {
      const Event& event = events[k];
      const bool is_held =
          event.rank == pair.rank && run.position(event.rank) == pair.position && !event.finish &&
          (run.InstructionOf(event) == pair.pair.earlier || run.InstructionOf(event) == pair.pair.later);
      (is_held ? held : others).push_back(k);
    }
    together |= others.empty();
    const std::vector<int>& from = (together && !held.empty()) ? held : others;
    return from[random() % from.size()];
  });
}

RunResult Interpreter::RunReversed(const Pair& pair, uint64_t seed) const {
  InterpreterRun run(interpreted_);
  std::mt19937_64 random(seed);
  return run.Finish([&](const std::vector<Event>& events) {
    std::vector<int> others;
    for (int k = 0; k < static_cast<int>(events.size()); ++k) {
      const Event& event = events[k];
      const bool is_held = event.rank == pair.rank && run.position(event.rank) == pair.position &&
                           !event.finish && run.InstructionOf(event) == pair.pair.earlier &&
                           !run.IsDone(event.rank, pair.pair.later);
      if (!is_held) {
        others.push_back(k);
      }
    }
    return others.empty() ? static_cast<int>(random() % events.size()) : others[random() % others.size()];
  });
}

std::optional<std::string> FindHarm(const Interpreter& interpreter, const std::vector<Ending>& expected,
                                    uint64_t seed, int num_seeds) {
  const auto harm = [&](const RunResult& result, const std::string& order) -> std::optional<std::string> {
    if (result.kind != RunResult::Kind::kEnded) {
      return absl::StrCat(order, ": ", result.what);
    }
    if (result.endings != expected) {
      return absl::StrCat(order, ": ends in other hashes");
    }
    return std::nullopt;
  };
  if (auto found = harm(interpreter.RunInIssueOrder(), "in issue order")) {
    return found;
  }
  for (const Interpreter::Pair& pair : interpreter.UnorderedPairs()) {
    const std::string names = absl::StrCat(pair.pair.later, " and ", pair.pair.earlier);
    if (auto found = harm(interpreter.RunAtOnce(pair, seed), names + " at once")) {
      return found;
    }
    if (auto found = harm(interpreter.RunReversed(pair, seed), names + " reversed")) {
      return found;
    }
  }
  for (int k = 0; k < num_seeds; ++k) {
    if (auto found = harm(interpreter.RunAnyOrder(seed + k), absl::StrCat("seed ", seed + k))) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace tandem::schedules_v1
