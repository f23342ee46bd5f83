// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::schedules {

enum class Opcode : uint8_t {
  kLoadInputs,       // learning rate, t, step number, request bits: from the host's record to the device's
  kLoadBatch,        // target: value; one microbatch's tokens, from the host to the device
  kForward,          // target: node
  kRecompute,        // target: node; computes again the outputs of its forward that were not kept
  kBackwardInput,    // target: node; all of its backward that is not in the weight half
  kBackwardWeight,   // target: node that has a weight half; directly or later behind the input half
  kSend,             // target: value; to another stage
  kReceive,          // target: value; from another stage
  kHostWait,         // target: value; the issuing thread waits until the value is on the host
  kUnshard,          // target: unit; all-gather over the inner group
  kUnshardOuter,     // target: unit; all-gather of the inner shard over the outer group
  kZero,             // target: unit; zeros the part of a contribution that no node writes
  kRound,            // target: unit; rounds a part that was added up in the main type to the transport type
  kAccumulate,       // target: unit; adds a contribution to the full gradient
  kReduceGradients,  // target: unit; over the inner group, unless the rank is alone there, into the
                     // accumulator; yields norm terms if it is the last
  kReduceOuter,      // target: unit; over the outer group
  kGradientNorm,     // one exchange of norm terms and request bits; writes the outcome
  kOptimizerStep,    // target: unit
  kUpdateStates,     // updates every state that has a counter, from the counters of all ranks
  kCopy,             // copies between rings and what segments access instead, buffer by buffer
  kReport,           // copies each buffer that it reads to the host buffer at the same position
  kSnapshot,         // the same of what a checkpoint holds: weights and optimizer state, or states
  kFill,             // tests: fills buffers that are no longer read with NaN
};
inline constexpr int kNumOpcodes = 23;

enum class TargetKind : uint8_t { kNone, kNode, kUnit, kValue };

// Where the bytes in the device's memory come from.
enum class MemoryRule : uint8_t {
  kNone,
  kPass,       // the node's declared access
  kOperands,   // every operand but staging, which the link fills while it transfers
  kCopyAlone,  // the operands where the group has one rank, else the link does all
};

// Where the bytes on the link come from.
enum class LinkRule : uint8_t {
  kNone,
  kPass,          // the node's declared access, where it names a communicator
  kWritten,       // what is gathered
  kReduced,       // what is exchanged, and the sum that is gathered if every rank of the inner axis keeps it
  kReducedOuter,  // the inner axis' sum; twice if every rank of the outer axis keeps all of it
  kMessage,       // a few bytes, whose latency counts
  kPeer,          // one buffer, from one rank to another
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
