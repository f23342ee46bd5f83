// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::schedules {

enum class Opcode : uint8_t {
  // Copies the inputs of the run (RunInputs in fsdp/run_inputs.h) from the host to the device.
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
  kZero,            // target: unit; zeros a part of a contribution that no pass writes
  kRound,           // target: unit; rounds a part that was added up in the main type to the transport type
  kAccumulate,      // target: unit; adds a contribution to the full gradient
  // target: unit; adds the contributions (or full gradients) of the inner group's ranks to the accumulator,
  // which the first one of a run overwrites. The last one writes the norm terms, unless a ReduceOuter
  // follows.
  kReduceGradients,
  kReduceOuter,    // target: unit; adds up the accumulators of the outer group; writes the norm terms
  kGradientNorm,   // exchanges norm terms and request bits once; writes the outcome
  kOptimizerStep,  // target: unit
  kUpdateStates,   // updates every state that has a counter, from the counters of all ranks
  kCopy,           // copies between rings and the locals that segments access instead (passes/segments.h)
  kReport,         // copies buffers to the host, the k-th source to the k-th copy
  kSnapshot,       // the same as Report for what a checkpoint holds: weights and optimizer state, or states
};
inline constexpr int kNumOpcodes = 22;

enum class TargetKind : uint8_t { kNone, kNode, kUnit, kValue };

// How the bytes that an instruction moves in the device's memory are counted.
enum class MemoryRule : uint8_t {
  kNone,
  kPass,       // Access::bytes_moved of the node's pass
  kOperands,   // every operand except staging, which the link fills while it transfers
  kCopyAlone,  // the operands if the group has one rank; otherwise nothing, because the link does all
};

// How the bytes that an instruction moves on the link are counted.
enum class LinkRule : uint8_t {
  kNone,
  kPass,          // Access::link_bytes of the node's pass, if the node communicates
  kWritten,       // the buffer that is gathered
  kReduced,       // the buffer that is exchanged; plus the accumulator if the ranks then gather it
  kReducedOuter,  // the accumulator; twice if the ranks of the outer axis then gather it
  kMessage,       // a few bytes: only the latency of the link counts
  kPeer,          // one buffer, which goes from one rank to another
};

// One row for each opcode (opcode.cc). Everything else that defines an opcode is in one place each: operands
// (signature.cc), symbol (check/execution.cc), call (trainer/binder.cc).
struct OpcodeInfo {
  Opcode opcode;
  const char* name;  // as the text prints it: "reduce"
  TargetKind target;
  bool of_microbatch;  // requires a microbatch; optional for an Unshard: without one, it serves the whole run
  MemoryRule memory;
  LinkRule link;
};

const OpcodeInfo& InfoOf(Opcode opcode);

// Forward, Recompute and the halves of the backward.
inline bool IsNodePass(Opcode opcode) { return InfoOf(opcode).target == TargetKind::kNode; }

}  // namespace tandem::schedules
