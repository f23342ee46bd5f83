// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// One pass of a node for one microbatch, or one exchange of a value with another stage.
struct NodePass {
  // One of kForward, kBackwardInput, kBackwardWeight, kSend, kReceive and kRecompute. In a schedule,
  // kRecompute marks a place at which to recompute the node. It has an effect only if the backward of the
  // node's layer needs this and if some node that it recomputes communicates. Everything else is recomputed
  // directly before its first reader (InsertRecompute).
  Opcode opcode = Opcode::kForward;
  int target = -1;  // node, or value of a send or receive
  int microbatch = 0;
  bool gradient = false;  // for a send or receive: the value's gradient is exchanged
  bool operator==(const NodePass&) const = default;
};

// The passes of a stage in one run, in issue order. A schedule is a function that makes such a list. It knows
// neither units nor memory nor waits.
using PassList = std::vector<NodePass>;

// Runs one microbatch after the other, each forward and then backward, chunk by chunk. A weight half is
// directly behind its input half.
PassList Sequential(const Outline& outline, int num_microbatches);

// Interleaves the forward of microbatch i with the backward of i - 1, layer by layer, so that all-to-alls of
// one run beside the compute of the other. If delay_weights, a weight half runs while the next input half
// waits for communication; otherwise it is directly behind its own input half. For jobs of one stage.
PassList Overlapped(const Outline& outline, int num_microbatches, bool delay_weights = true);

// 1F1B (one forward, one backward) for one of several stages; interleaved if a rank has several chunks.
// Microbatches form groups of num_stages, of which the last may be smaller. A chunk's forward takes the
// microbatches of a group in order before the next chunk's forward does, and the backward goes through the
// chunks in reverse. A stage begins with some forwards, continues with a forward and a backward in turn, and
// ends with the remaining backwards. Values are received one chunk pass before they are needed.
PassList Pipelined(const Outline& outline, int num_stages, int num_microbatches);

// Runs only the forward of every microbatch, in the order of a pipeline of num_stages stages.
PassList ForwardOnly(const Outline& outline, int num_microbatches, int num_stages = 1);

}  // namespace tandem::schedules
