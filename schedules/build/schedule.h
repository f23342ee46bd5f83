// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// One pass of a node for one microbatch, or a value that goes to or comes from another stage.
struct NodePass {
  // kForward, kBackwardInput, kBackwardWeight; kSend, kReceive. kRecompute, in a schedule: the place of the
  // node's recomputation, if its layer's backward needs it and the layer recomputes a node that communicates.
  // All other recomputation goes directly before its first reader (InsertRecompute).
  Opcode opcode = Opcode::kForward;
  int target = -1;  // node; value of a send or receive
  int microbatch = 0;
  bool gradient = false;  // of a send or receive: the value's gradient goes
  bool operator==(const NodePass&) const = default;
};

// What a stage does in one run, in issue order. A schedule is a function that makes one of these; it knows
// neither units nor memory nor waits.
using PassList = std::vector<NodePass>;

// One microbatch after the other, forward and then backward, each chunk by chunk; a weight half directly
// behind its input half.
PassList Sequential(const Outline& outline, int num_microbatches);

// The forward of microbatch i over the backward of i - 1, layer by layer: all-to-alls run beside the other
// microbatch's compute. delay_weights: weight halves run where the chain of the backward waits for
// communication; otherwise directly behind their input halves. Of one stage.
PassList Overlapped(const Outline& outline, int num_microbatches, bool delay_weights = true);

// 1F1B of one of several stages, interleaved if a rank has several chunks. Microbatches go in groups of as
// many as there are stages, the last of which may lack some; a chunk's forward takes those of a group in
// order before the next chunk's does, and the backward goes through the chunks the other way. Stage s begins
// with some forwards, goes on with a forward and a backward in turn, and ends with the backwards left. What a
// chunk receives is received one chunk's pass ahead.
PassList Pipelined(const Outline& outline, int num_stages, int num_microbatches);

// The forward of every microbatch, in the order of a pipeline of so many stages.
PassList ForwardOnly(const Outline& outline, int num_microbatches, int num_stages = 1);

}  // namespace tandem::schedules
