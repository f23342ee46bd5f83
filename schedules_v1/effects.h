#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules_v1/access.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// The one table of what each opcode reads and writes. Waits are derived from it and the checker proves
// against it; nothing else knows what an instruction touches.
//
//   opcode           reads                                        writes
//   LoadBatch                                                     the batch value
//   Forward, Backward and its halves (per the node's Access)
//                    values, value gradients, parameter slots     values, value gradients, gradient slots
//   Unshard          weight shard                                 parameter slot, communicator
//   Reshard                                                       parameter slot
//   ReduceGradients  gradient slot                                gradient shard, staging, communicator
//   GradientNorm     gradient shards of all units                 norm result, communicator
//   OptimizerStep    gradient shard, norm result                  weight shard, optimizer state
//   Report           norm result, optimizer state, the loss of every microbatch
//   Snapshot         weight shards, optimizer state
//   Release                                                       the value or gradient
//
// Communicators count as written: what is issued on one of them is ordered. The loss values live until
// Report has read them.

enum class ResourceKind : uint8_t {
  kParameterSlot,
  kGradientSlot,
  kWeightShard,
  kGradientShard,
  kOptimizerState,
  kValue,
  kValueGradient,
  kStaging,     // where ReduceGradients receives the pieces of other ranks
  kNormResult,  // clip coefficient, finiteness
  kCommunicator,
};

// A dense index, of one EffectTable.
using ResourceId = int;

struct Effect {
  ResourceId resource = -1;
  bool write = false;
};

// Resources of an outline run by programs of at most these sizes.
class EffectTable {
 public:
  // The slots and microbatches are the maxima over `programs`. `outline` must outlive the table.
  EffectTable(const Outline& outline, const std::vector<const Program*>& programs);

  int num_resources() const { return num_resources_; }

  // Replaces `effects` by those of `instruction` in a program of num_microbatches, writes included once
  // per resource. Requires operands in range (the checker looks before it asks).
  void Effects(const Instruction& instruction, int num_microbatches, std::vector<Effect>& effects) const;

  ResourceId Slot(SlotRole role, int size_class, int index) const;
  ResourceId Value(ValueId value, int microbatch) const;
  ResourceId ValueGradient(ValueId value, int microbatch) const;

  // "parameter slot p1.0", "gradient of layers.0.hidden of microbatch 0"
  std::string Name(ResourceId resource) const;

 private:
  ResourceId At(ResourceKind kind, int offset) const { return begin_[static_cast<int>(kind)] + offset; }

  const Outline& outline_;
  int num_microbatches_ = 0;
  int num_resources_ = 0;
  std::vector<int> parameter_class_begin_;  // offset of each size class among the slots of the role
  std::vector<int> gradient_class_begin_;
  ResourceId begin_[10] = {};  // by ResourceKind
};

}  // namespace tandem::schedules_v1
