#include "schedules_v1/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

constexpr int kNumCommunicatorCells = 4;

bool Exists(int index, size_t size) { return index >= 0 && index < static_cast<int>(size); }

std::vector<int> LargestCounts(const std::vector<const Program*>& programs,
                               std::vector<int> Program::*counts) {
  std::vector<int> largest;
  for (const Program* program : programs) {
    const std::vector<int>& of_program = program->*counts;
    largest.resize(std::max(largest.size(), of_program.size()));
    for (size_t i = 0; i < of_program.size(); ++i) {
      largest[i] = std::max(largest[i], of_program[i]);
    }
  }
  return largest;
}

// Who is known to be done before whom: a bit per instruction and ancestor.
class Ancestors {
 public:
  explicit Ancestors(const Program& program)
      : words_((program.instructions.size() + 63) / 64), bits_(words_ * program.instructions.size()) {
    std::map<StreamKind, int> newest;
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (const auto found = newest.find(instruction.stream); found != newest.end()) {
        Inherit(i, found->second);
      }
      for (const int wait : instruction.waits) {
        Inherit(i, wait);
      }
      newest[instruction.stream] = i;
    }
  }

  bool Orders(int earlier, int later) const {
    return (bits_[later * words_ + earlier / 64] >> (earlier % 64) & 1) != 0;
  }

 private:
  void Inherit(int i, int ancestor) {
    for (size_t word = 0; word < words_; ++word) {
      bits_[i * words_ + word] |= bits_[ancestor * words_ + word];
    }
    bits_[i * words_ + ancestor / 64] |= uint64_t{1} << (ancestor % 64);
  }

  size_t words_;
  std::vector<uint64_t> bits_;
};

void SortUnique(std::vector<Cell>& cells) {
  std::sort(cells.begin(), cells.end());
  cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
}

}  // namespace

Placement::Placement(const Outline& outline, const std::vector<const Program*>& programs,
                     const Program& program)
    : outline_(outline), program_(program) {
  const auto cells = [this](int count) {
    const Cell begin = num_cells_;
    num_cells_ += count;
    return begin;
  };
  const auto slots = [&](std::vector<Cell>& begins, const std::vector<int>& counts) {
    for (const int count : counts) {
      begins.push_back(cells(count));
    }
  };
  const int units = static_cast<int>(outline.units.size());
  slots(parameter_begin_, LargestCounts(programs, &Program::parameter_slots));
  slots(gradient_begin_, LargestCounts(programs, &Program::gradient_slots));
  weights_ = cells(units);
  gradient_shards_ = cells(units);
  optimizer_states_ = cells(units);
  norm_ = cells(1);
  staging_ = cells(1);
  communicators_ = cells(kNumCommunicatorCells);
  num_lasting_ = num_cells_;

  PlaceAll();
  if (fault_.empty()) {
    FindOverlaps();
    FindUnordered();
  }
}

void Placement::PlaceAll() {
  placed_.resize(program_.instructions.size());
  for (int i = 0; i < static_cast<int>(placed_.size()); ++i) {
    const Instruction& instruction = program_.instructions[i];
    std::string fault;
    for (const int wait : instruction.waits) {
      if (wait < 0 || wait >= i) {
        fault = absl::StrCat("waits for ", wait, ", which is not issued yet");
      }
    }
    if (fault.empty()) {
      fault = Place(i);
    }
    if (!fault.empty()) {
      fault_ = absl::StrCat(i, " (", ToText(instruction, outline_), ") ", fault);
      return;
    }
    PlacedInstruction& placed = placed_[i];
    if (instruction.communicator != Communicator::kNone) {
      placed.writes.push_back(communicators_ + static_cast<int>(instruction.communicator));
    }
    SortUnique(placed.reads);
    SortUnique(placed.writes);
  }
}

std::string Placement::Find(const Key& key, Cell& cell) const {
  const auto found = live_.find(key);
  if (found == live_.end()) {
    const auto& [value, microbatch, of_gradient] = key;
    return absl::StrCat("touches ", of_gradient ? "the gradient of " : "", outline_.values[value].name,
                        " mb ", microbatch, ", which is not live when it is issued");
  }
  cell = found->second;
  return "";
}

Cell Placement::Allocate(int64_t bytes) {
  const int64_t offset = arena_.Allocate(bytes);
  blocks_.emplace_back(offset, offset + std::max<int64_t>(bytes, 1));
  return num_cells_++;
}

Cell Placement::Open(const Key& key) {
  const auto& [value, microbatch, of_gradient] = key;
  const Value& of = outline_.values[value];
  return live_[key] = Allocate(of_gradient ? of.gradient_bytes.bound : of.bytes.bound);
}

std::string Placement::FindSlot(const Instruction& instruction, SlotRole role, UnitId unit,
                                Cell& cell) const {
  for (const SlotUse& slot : instruction.slots) {
    if (slot.role != role || slot.unit != unit) {
      continue;
    }
    const std::vector<int>& counts =
        role == SlotRole::kParameters ? program_.parameter_slots : program_.gradient_slots;
    if (!Exists(slot.size_class, counts.size()) || !Exists(slot.index, counts[slot.size_class])) {
      return absl::StrCat("names the slot ", ToText(slot), ", which there is not");
    }
    cell = role == SlotRole::kParameters ? ParameterSlot(slot.size_class, slot.index)
                                         : GradientSlot(slot.size_class, slot.index);
    return "";
  }
  return absl::StrCat("names no slot of ", outline_.units[unit].name);
}

// Of the instructions that have one slot, that of their unit.
std::string Placement::PlaceSlot(const Instruction& instruction, SlotRole role, PlacedInstruction& placed) {
  if (!Exists(instruction.target, outline_.units.size())) {
    return "has no such unit";
  }
  Cell cell = -1;
  if (std::string fault = FindSlot(instruction, role, instruction.target, cell); !fault.empty()) {
    return fault;
  }
  placed.outputs.push_back(cell);
  placed.writes.push_back(cell);
  return "";
}

std::string Placement::PlacePass(const Instruction& instruction, const Access& access,
                                 PlacedInstruction& placed) {
  const int microbatch = instruction.microbatch;
  if (instruction.add_value_gradients.size() != access.gradient_writes.size() ||
      instruction.add_parameter_gradients.size() != access.parameter_gradients.size()) {
    return "does not say for each gradient whether it adds";
  }
  std::string fault;
  const auto input = [&](const std::string& problem, Cell cell) {
    fault = fault.empty() ? problem : fault;
    placed.inputs.push_back(cell);
    placed.reads.push_back(cell);
  };
  Cell cell = -1;
  for (const ValueId value : access.reads) {
    const std::string problem = Find({value, microbatch, false}, cell);
    input(problem, cell);
  }
  for (const ValueId value : access.gradient_reads) {
    const std::string problem = Find({value, microbatch, true}, cell);
    input(problem, cell);
  }
  for (const UnitPart& part : access.parameters) {
    const std::string problem = FindSlot(instruction, SlotRole::kParameters, part.unit, cell);
    input(problem, cell);
  }
  if (!fault.empty()) {
    return fault;
  }
  for (const ValueId value : access.writes) {
    placed.outputs.push_back(Open({value, microbatch, false}));
  }
  for (size_t k = 0; k < access.gradient_writes.size(); ++k) {
    const Key key = {access.gradient_writes[k], microbatch, true};
    if (!instruction.add_value_gradients[k]) {
      cell = Open(key);
    } else if (fault = Find(key, cell); !fault.empty()) {
      return fault;
    }
    placed.outputs.push_back(cell);
  }
  for (const UnitPart& part : access.parameter_gradients) {
    if (fault = FindSlot(instruction, SlotRole::kGradients, part.unit, cell); !fault.empty()) {
      return fault;
    }
    placed.outputs.push_back(cell);
  }
  placed.writes = placed.outputs;
  if (access.scratch.bound > 0) {
    placed.scratch = Allocate(access.scratch.bound);
    placed.writes.push_back(placed.scratch);
    arena_.Free(blocks_.back().first);
  }
  return "";
}

std::string Placement::Place(int i) {
  const Instruction& instruction = program_.instructions[i];
  PlacedInstruction& placed = placed_[i];
  const auto all_units = [&](Cell begin) {
    for (size_t unit = 0; unit < outline_.units.size(); ++unit) {
      placed.reads.push_back(begin + static_cast<Cell>(unit));
    }
  };
  const bool communicates = instruction.opcode == Opcode::kUnshard ||
                            instruction.opcode == Opcode::kReduceGradients ||
                            instruction.opcode == Opcode::kGradientNorm;
  if (communicates && instruction.communicator == Communicator::kNone) {
    return "has no communicator";
  }
  switch (instruction.opcode) {
    case Opcode::kLoadBatch:
    case Opcode::kRelease: {
      if (!Exists(instruction.target, outline_.values.size()) ||
          !Exists(instruction.microbatch, program_.num_microbatches)) {
        return "has no such value";
      }
      const Key key = {instruction.target, instruction.microbatch, instruction.of_gradient};
      Cell cell = -1;
      if (instruction.opcode == Opcode::kLoadBatch) {
        cell = Open(key);
      } else {
        if (std::string fault = Find(key, cell); !fault.empty()) {
          return fault;
        }
        arena_.Free(blocks_[cell - num_lasting_].first);
        live_.erase(key);
      }
      placed.outputs.push_back(cell);
      placed.writes.push_back(cell);
      return "";
    }
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      if (!Exists(instruction.target, outline_.nodes.size()) ||
          !Exists(instruction.microbatch, program_.num_microbatches)) {
        return "has no such node";
      }
      return PlacePass(instruction, AccessOf(outline_.nodes[instruction.target], instruction.opcode), placed);
    case Opcode::kUnshard:
      placed.reads.push_back(Weights(instruction.target));
      return PlaceSlot(instruction, SlotRole::kParameters, placed);
    case Opcode::kReshard:
      return PlaceSlot(instruction, SlotRole::kParameters, placed);
    case Opcode::kReduceGradients:
      if (instruction.add_parameter_gradients.size() != 1) {
        return "does not say whether it adds";
      }
      placed.writes = {GradientShard(instruction.target), staging_};
      return PlaceSlot(instruction, SlotRole::kGradients, placed);
    case Opcode::kGradientNorm:
      all_units(gradient_shards_);
      placed.writes = {norm_};
      return "";
    case Opcode::kOptimizerStep:
      if (!Exists(instruction.target, outline_.units.size())) {
        return "has no such unit";
      }
      placed.reads = {GradientShard(instruction.target), norm_};
      placed.writes = {Weights(instruction.target), OptimizerState(instruction.target)};
      return "";
    case Opcode::kReport:
      for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
        Cell cell = -1;
        if (std::string fault = Find({outline_.loss, microbatch, false}, cell); !fault.empty()) {
          return fault;
        }
        placed.inputs.push_back(cell);
        placed.reads.push_back(cell);
      }
      placed.reads.push_back(norm_);
      all_units(optimizer_states_);
      return "";
    case Opcode::kSnapshot:
      all_units(weights_);
      all_units(optimizer_states_);
      return "";
  }
  return "is of no known kind";
}

void Placement::FindOverlaps() {
  overlaps_.resize(num_cells_);
  std::vector<int> by_offset(blocks_.size());
  for (size_t k = 0; k < by_offset.size(); ++k) {
    by_offset[k] = static_cast<int>(k);
  }
  std::sort(by_offset.begin(), by_offset.end(), [&](int a, int b) { return blocks_[a] < blocks_[b]; });
  for (size_t k = 0; k < by_offset.size(); ++k) {
    for (size_t l = k + 1; l < by_offset.size(); ++l) {
      if (blocks_[by_offset[l]].first >= blocks_[by_offset[k]].second) {
        break;
      }
      overlaps_[num_lasting_ + by_offset[k]].push_back(num_lasting_ + by_offset[l]);
      overlaps_[num_lasting_ + by_offset[l]].push_back(num_lasting_ + by_offset[k]);
    }
  }
}

void Placement::FindUnordered() {
  const Ancestors ancestors(program_);
  std::vector<std::vector<int>> readers(num_cells_);
  std::vector<std::vector<int>> writers(num_cells_);
  std::map<std::pair<int, int>, UnorderedPair> pairs;
  // a's use of a cell and b's are a conflict; torn: b writes what a reads or writes, and so on.
  const auto conflict = [&](int a, bool a_writes, int b, bool b_writes) {
    if (a == b || program_.instructions[a].stream == program_.instructions[b].stream) {
      return;
    }
    const int earlier = std::min(a, b);
    const int later = std::max(a, b);
    if (ancestors.Orders(earlier, later)) {
      return;
    }
    UnorderedPair& pair = pairs[{earlier, later}];
    pair.earlier = earlier;
    pair.later = later;
    pair.earlier_torn |= earlier == a ? b_writes : a_writes;
    pair.later_torn |= earlier == a ? a_writes : b_writes;
  };
  for (int i = 0; i < static_cast<int>(placed_.size()); ++i) {
    for (const bool i_writes : {false, true}) {
      for (const Cell cell : i_writes ? placed_[i].writes : placed_[i].reads) {
        const auto against = [&](Cell other) {
          for (const int writer : writers[other]) {
            conflict(writer, true, i, i_writes);
          }
          for (const int reader : readers[other]) {
            if (i_writes) {
              conflict(reader, false, i, true);
            }
          }
        };
        against(cell);
        for (const Cell other : overlaps_[cell]) {
          against(other);
        }
      }
    }
    for (const Cell cell : placed_[i].reads) {
      readers[cell].push_back(i);
    }
    for (const Cell cell : placed_[i].writes) {
      writers[cell].push_back(i);
    }
  }
  for (const auto& [key, pair] : pairs) {
    unordered_.push_back(pair);
  }
}

}  // namespace tandem::schedules_v1
