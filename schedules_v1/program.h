#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules_v1/outline.h"

namespace tandem::schedules_v1 {

// What one rank does in one optimizer step, as data.

enum class Opcode : uint8_t {
  kLoadBatch,        // target: value
  kForward,          // target: node
  kBackward,         // target: node
  kBackwardInput,    // target: node
  kBackwardWeight,   // target: node
  kUnshard,          // target: unit
  kReshard,          // target: unit
  kReduceGradients,  // target: unit; contributions of one microbatch into the gradient shard
  kGradientNorm,     // no target; one all-reduce of terms and request bits
  kOptimizerStep,    // target: unit
  kReport,           // no target; the scalars and norm terms of the step, for the host
  kSnapshot,         // no target; weights and optimizer state, for the host; in a program of its own
  kRelease,          // target: value (or its gradient)
};

enum class Communicator : uint8_t { kNone, kGather, kReduce, kNorm };
inline constexpr int kNumCommunicators = 4;  // kNone included

enum class SlotRole : uint8_t { kParameters, kGradients };

// Slots are coloured per size class; a class is one slot size in bytes.
struct SlotUse {
  SlotRole role = SlotRole::kParameters;
  UnitId unit = -1;
  int size_class = -1;
  int index = -1;  // within the class
  bool operator==(const SlotUse&) const = default;
};

struct Instruction {
  Opcode opcode = Opcode::kForward;
  int target = -1;
  int microbatch = -1;  // -1: not of one microbatch
  StreamKind stream = StreamKind::kCompute;
  Communicator communicator = Communicator::kNone;
  // Every slot that it touches, parameters first, in the order of the units in the node's Access.
  std::vector<SlotUse> slots;
  // Parallel to Access::gradient_writes of the node: add instead of overwrite.
  std::vector<bool> add_value_gradients;
  // Parallel to Access::parameter_gradients of the node; for ReduceGradients one entry: the gradient shard.
  std::vector<bool> add_parameter_gradients;
  bool of_gradient = false;  // Release: of the value's gradient
  // Indices of earlier instructions, on other streams, that must have finished.
  std::vector<int> waits;
  bool operator==(const Instruction&) const = default;
};

// Instructions in host issue order. At its start every stream has joined every other.
struct Program {
  std::string name;  // "train", "validate", "snapshot"
  int num_microbatches = 0;
  std::vector<int64_t> parameter_slot_bytes;  // per size class
  std::vector<int> parameter_slots;           // how many of each class
  std::vector<int64_t> gradient_slot_bytes;
  std::vector<int> gradient_slots;
  std::vector<Instruction> instructions;
};

}  // namespace tandem::schedules_v1
