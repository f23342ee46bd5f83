// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::schedules {

enum class Opcode : uint8_t {
  // Copies learning rate, t, step number and request bits from the host's record to the device's.
  kLoadInputs,
  kLoadBatch,       // target: value; copies one microbatch's tokens from the host to the device
  kForward,         // target: node
  kRecompute,       // target: node; recomputes the outputs of its forward that were not kept
  kBackwardInput,   // target: node; everything in its backward that is not in the weight half
  kBackwardWeight,  // target: node that has a weight half; runs directly behind the input half or later
  kSend,            // target: value; sends it to another stage
  kReceive,         // target: value; receives it from another stage
  kHostWait,        // target: value; the issuing thread waits until the value is on the host
  kUnshard,         // target: unit; gathers over the inner group
  kUnshardOuter,    // target: unit; gathers the inner shard over the outer group
  kZero,            // target: unit; zeros the part of a contribution that no node writes
  kRound,           // target: unit; rounds a part that was added up in the main type to the transport type
  kAccumulate,      // target: unit; adds a contribution to the full gradient
  // target: unit; reduces over the inner group, unless the rank is alone there, into the accumulator; the
  // last one yields norm terms.
  kReduceGradients,
  kReduceOuter,    // target: unit; reduces over the outer group
  kGradientNorm,   // exchanges norm terms and request bits once; writes the outcome
  kOptimizerStep,  // target: unit
  kUpdateStates,   // updates every state that has a counter, from the counters of all ranks
  kCopy,           // copies between rings and the locals that segments access instead, buffer by buffer
  kReport,         // copies each buffer that it reads to the host buffer at the same position
  kSnapshot,       // copies, in the same way, what a checkpoint holds: weights and optimizer state, or states
};
inline constexpr int kNumOpcodes = 22;

enum class TargetKind : uint8_t { kNone, kNode, kUnit, kValue };

// How the bytes that an instruction moves in the device's memory are counted.
enum class MemoryRule : uint8_t {
  kNone,
  kPass,       // the access that the node declares
  kOperands,   // every operand except staging, which the link fills while it transfers
  kCopyAlone,  // the operands if the group has one rank; otherwise nothing, because the link does all
};

// How the bytes that an instruction moves on the link are counted.
enum class LinkRule : uint8_t {
  kNone,
  kPass,          // the access that the node declares, if it names a communicator
  kWritten,       // the buffer that is gathered
  kReduced,       // the buffer that is exchanged, and the sum if every rank of the inner axis gathers it
  kReducedOuter,  // the sum of the inner axis; twice if every rank of the outer axis gathers it
  kMessage,       // a few bytes, of which only the latency counts
  kPeer,          // one buffer, which goes from one rank to another
};

// One row for each opcode (opcode.cc). Its other definitions are in one place each: operands
// (signature.cc), symbol (check/execution.cc), call (trainer/binder.cc).
struct OpcodeInfo {
  Opcode opcode;
  const char* name;  // as the text prints it: "reduce"
  TargetKind target;
  bool of_microbatch;  // requires a microbatch; gathers may carry one as a label
  MemoryRule memory;
  LinkRule link;
};

const OpcodeInfo& InfoOf(Opcode opcode);

// Forward, Recompute and the halves of the backward.
inline bool IsNodePass(Opcode opcode) { return InfoOf(opcode).target == TargetKind::kNode; }

}  // namespace tandem::schedules
