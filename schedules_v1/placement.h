#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "schedules_v1/block_allocator.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// What each instruction of a program touches in memory, as the issuing thread finds it: it walks the program
// in issue order, allocates values and scratch from one arena (the rule of memory.h), and looks up what is
// live. Part of the interpreter (interpreter.h), and so worked out from the outline and the operands alone,
// apart from effects.h and all that the checker stands on.

// A place that holds one thing at a time. Values, their gradients and scratch have a cell per allocation,
// and cells whose blocks overlap are one memory.
using Cell = int;

struct PlacedInstruction {
  // Of a pass of a node, in the order of its Access: values, value gradients, the parameter slot of each
  // part.
  std::vector<Cell> inputs;
  // Values, value gradients, the gradient slot of each part. Of Unshard, Reshard, ReduceGradients: the slot.
  // Of LoadBatch and Release: the value or gradient.
  std::vector<Cell> outputs;
  Cell scratch = -1;
  // What it must not run beside another use of, ascending.
  std::vector<Cell> reads;
  std::vector<Cell> writes;
};

// Two instructions that touch one cell, one of them writing, and that neither stream order nor waits order.
struct UnorderedPair {
  int earlier = -1;  // in issue order
  int later = -1;
  bool earlier_torn = false;  // it reads, or also writes, what the later one writes
  bool later_torn = false;
};

class Placement {
 public:
  // The slots are the largest counts over `programs`, so that slot cells are the same in all of them;
  // `program` is one of these. All must outlive the placement.
  Placement(const Outline& outline, const std::vector<const Program*>& programs, const Program& program);

  // Why the program cannot be issued at all: an operand that is not there, a wait for what is not issued
  // yet, a use of what is not live in issue order. Empty: it can; the rest holds only then.
  const std::string& fault() const { return fault_; }

  const PlacedInstruction& at(int i) const { return placed_[i]; }
  const std::vector<UnorderedPair>& unordered() const { return unordered_; }

  // Cells of the state that outlives a program come first and are the same for all programs of an outline.
  int num_cells() const { return num_cells_; }
  int num_lasting_cells() const { return num_lasting_; }
  Cell ParameterSlot(int size_class, int index) const { return parameter_begin_[size_class] + index; }
  Cell GradientSlot(int size_class, int index) const { return gradient_begin_[size_class] + index; }
  Cell Weights(UnitId unit) const { return weights_ + unit; }
  Cell GradientShard(UnitId unit) const { return gradient_shards_ + unit; }
  Cell OptimizerState(UnitId unit) const { return optimizer_states_ + unit; }
  Cell norm() const { return norm_; }

  // The cells whose memory overlaps that of `cell`, itself not among them.
  const std::vector<Cell>& overlaps(Cell cell) const { return overlaps_[cell]; }

 private:
  using Key = std::tuple<ValueId, int, bool>;  // value, microbatch, of the gradient

  void PlaceAll();
  std::string Place(int i);
  std::string PlacePass(const Instruction& instruction, const Access& access, PlacedInstruction& placed);
  std::string PlaceSlot(const Instruction& instruction, SlotRole role, PlacedInstruction& placed);
  std::string FindSlot(const Instruction& instruction, SlotRole role, UnitId unit, Cell& cell) const;
  std::string Find(const Key& key, Cell& cell) const;
  Cell Open(const Key& key);
  Cell Allocate(int64_t bytes);
  void FindOverlaps();
  void FindUnordered();

  const Outline& outline_;
  const Program& program_;
  std::string fault_;
  std::vector<PlacedInstruction> placed_;
  std::vector<UnorderedPair> unordered_;

  std::vector<Cell> parameter_begin_;  // per class, and the end
  std::vector<Cell> gradient_begin_;
  Cell weights_ = 0;
  Cell gradient_shards_ = 0;
  Cell optimizer_states_ = 0;
  Cell norm_ = 0;
  Cell staging_ = 0;
  Cell communicators_ = 0;
  int num_lasting_ = 0;
  int num_cells_ = 0;

  BlockAllocator arena_;
  std::map<Key, Cell> live_;
  std::vector<std::pair<int64_t, int64_t>> blocks_;  // of cells from num_lasting_ on: offset, end
  std::vector<std::vector<Cell>> overlaps_;
};

}  // namespace tandem::schedules_v1
