// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/spans.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedules/program/pass_operand.h"

namespace tandem::schedules {
namespace {

// Layers in the order of their latest use, so that those used since an instruction are at the front.
class RecentLayers {
 public:
  struct Use {
    int layer = -1;
    int instruction = -1;
  };

  void Add(int layer, int instruction) {
    const auto found =
        std::find_if(uses_.begin(), uses_.end(), [&](const Use& use) { return use.layer == layer; });
    if (found == uses_.end()) {
      uses_.insert(uses_.begin(), {layer, instruction});
    } else {
      std::rotate(uses_.begin(), found, found + 1);
      uses_.front().instruction = instruction;
    }
  }

  // More than `limit` layers other than `layer` were used after `instruction`.
  bool MoreThan(int limit, int layer, int instruction) const {
    int count = 0;
    for (const Use& use : uses_) {
      if (use.instruction <= instruction) {
        break;
      }
      count += use.layer != layer;
      if (count > limit) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<Use> uses_;
};

// The last use by each microbatch of the units that keep what is gathered.
std::map<std::pair<UnitId, int>, int> LastUsesOfKept(const Outline& outline, const StageFrame& frame,
                                                     const std::vector<Instruction>& passes) {
  std::map<std::pair<UnitId, int>, int> last_uses;
  if (std::none_of(frame.units.begin(), frame.units.end(),
                   [](const UnitFrame& unit) { return unit.memory.keeps_gathered; })) {
    return last_uses;
  }
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    if (!IsNodePass(passes[i].opcode)) {
      continue;
    }
    for (const UnitPart& part : AccessOf(outline.nodes[passes[i].target], passes[i].opcode).parameters) {
      if (frame.units[part.unit].memory.keeps_gathered) {
        last_uses[{part.unit, passes[i].microbatch}] = i;
      }
    }
  }
  return last_uses;
}

}  // namespace

std::vector<UnitId> UnitsOf(const std::vector<UnitPart>& parts) {
  std::vector<UnitId> units;
  for (const UnitPart& part : parts) {
    if (std::find(units.begin(), units.end(), part.unit) == units.end()) {
      units.push_back(part.unit);
    }
  }
  return units;
}

std::vector<Span> FindSpans(const Outline& outline, const StageFrame& frame, int hold,
                            const std::vector<Instruction>& passes) {
  std::vector<Span> spans;
  std::vector<int> newest(outline.units.size(), -1);  // unit → its span
  const std::map<std::pair<UnitId, int>, int> last_uses = LastUsesOfKept(outline, frame, passes);
  std::vector<int> kept_until(outline.units.size(), -1);  // unit → the last use that its span serves anyway
  RecentLayers recent;
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    const Instruction& instruction = passes[i];
    if (!IsNodePass(instruction.opcode)) {
      continue;
    }
    const std::vector<UnitId> units =
        UnitsOf(AccessOf(outline.nodes[instruction.target], instruction.opcode).parameters);
    for (const UnitId unit : units) {
      const bool kept = frame.units[unit].memory.gathers_once || i <= kept_until[unit];
      if (const auto last = last_uses.find({unit, instruction.microbatch}); last != last_uses.end()) {
        kept_until[unit] = std::max(kept_until[unit], last->second);
      }
      const int span = newest[unit];
      if (span >= 0 && (kept || !recent.MoreThan(hold, outline.units[unit].layer, spans[span].last))) {
        spans[span].last = i;
      } else {
        newest[unit] = static_cast<int>(spans.size());
        spans.push_back({unit, i, i});
      }
    }
    for (const UnitId unit : units) {
      recent.Add(outline.units[unit].layer, i);
    }
  }
  return spans;
}

}  // namespace tandem::schedules
