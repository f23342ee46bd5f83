#include <algorithm>
#include <utility>

#include "schedules_v1/effects.h"
#include "schedules_v1/passes.h"

namespace tandem::schedules_v1 {
namespace {

// One gather of a unit: the instructions [first_use, last_use] of the builder's program use it.
struct Lease {
  UnitId unit = -1;
  int first_use = -1;
  int last_use = -1;
};

// In order of first use: the order on the gather stream.
std::vector<Lease> FindLeases(const Outline& outline, const Program& program) {
  std::vector<Lease> leases;
  std::vector<int> newest(outline.units.size(), -1);  // unit → its lease
  int previous_user = -1;                             // instruction that used any unit's parameters
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!TargetsNode(instruction.opcode)) {
      continue;
    }
    const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
    if (access.parameters.empty()) {
      continue;
    }
    for (const UnitId unit : UnitsOf(access.parameters)) {
      const bool goes_on = newest[unit] >= 0 && leases[newest[unit]].last_use == previous_user;
      if (goes_on) {
        leases[newest[unit]].last_use = i;
      } else {
        newest[unit] = static_cast<int>(leases.size());
        leases.push_back({unit, i, i});
      }
    }
    previous_user = i;
  }
  return leases;
}

// Per lease, the instruction of the builder's program before which it is gathered. Leases of one first use
// (a tied head has two) are gathered equally far ahead.
std::vector<int> GatherPositions(const std::vector<Lease>& leases, int prefetch, size_t num_units) {
  std::vector<int> positions;
  std::vector<int> first_uses;               // distinct, ascending
  std::vector<int> free_from(num_units, 0);  // where the unit's former lease has ended
  for (const Lease& lease : leases) {
    if (first_uses.empty() || first_uses.back() != lease.first_use) {
      first_uses.push_back(lease.first_use);
    }
    const size_t ahead = std::min<size_t>(prefetch, first_uses.size() - 1);
    int position = std::max(first_uses[first_uses.size() - 1 - ahead], free_from[lease.unit]);
    if (!positions.empty()) {
      position = std::max(position, positions.back());
    }
    positions.push_back(position);
    free_from[lease.unit] = lease.last_use + 1;
  }
  return positions;
}

// unit × microbatch → the last instruction that contributes to its gradient, or -1.
std::vector<int> LastContributions(const Outline& outline, const Program& program) {
  std::vector<int> last(outline.units.size() * program.num_microbatches, -1);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (TargetsNode(instruction.opcode)) {
      const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
      for (const UnitPart& part : access.parameter_gradients) {
        last[part.unit * program.num_microbatches + instruction.microbatch] = i;
      }
    }
  }
  return last;
}

}  // namespace

void InsertFsdp(const Outline& outline, int prefetch, Program& program) {
  const std::vector<Lease> leases = FindLeases(outline, program);
  const std::vector<int> gathers = GatherPositions(leases, prefetch, outline.units.size());
  const std::vector<int> contributions = LastContributions(outline, program);
  std::vector<int> open(outline.units.size(), -1);  // unit → lease

  std::vector<Instruction> result;
  size_t next_gather = 0;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    for (; next_gather < leases.size() && gathers[next_gather] == i; ++next_gather) {
      const Lease& lease = leases[next_gather];
      open[lease.unit] = static_cast<int>(next_gather);
      result.push_back({.opcode = Opcode::kUnshard,
                        .target = lease.unit,
                        .microbatch = program.instructions[lease.first_use].microbatch});
    }
    const Instruction instruction = program.instructions[i];
    result.push_back(instruction);
    if (!TargetsNode(instruction.opcode)) {
      continue;
    }
    const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
    for (const UnitId unit : UnitsOf(access.parameters)) {
      if (leases[open[unit]].last_use == i) {
        result.push_back({.opcode = Opcode::kReshard, .target = unit, .microbatch = instruction.microbatch});
      }
    }
    for (const UnitId unit : UnitsOf(access.parameter_gradients)) {
      if (contributions[unit * program.num_microbatches + instruction.microbatch] == i) {
        result.push_back(
            {.opcode = Opcode::kReduceGradients, .target = unit, .microbatch = instruction.microbatch});
      }
    }
  }
  program.instructions = std::move(result);
}

}  // namespace tandem::schedules_v1
