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

// One microbatch after the other, forward and then backward; a weight half directly behind its input half.
PassList Sequential(const Outline& outline, int num_microbatches);

// The forward of microbatch i over the backward of i - 1, layer by layer: all-to-alls run beside the other
// microbatch's compute. delay_weights: weight halves run where the chain of the backward waits for
// communication; otherwise directly behind their input halves. Of one stage.
PassList Overlapped(const Outline& outline, int num_microbatches, bool delay_weights = true);

// The forward of every microbatch.
PassList ForwardOnly(const Outline& outline, int num_microbatches);

}  // namespace tandem::schedules
