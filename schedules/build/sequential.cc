// SPDX-License-Identifier: Apache-2.0
#include "schedules/build/schedule.h"

namespace tandem::schedules {
namespace {

void AppendForward(const Outline& outline, int microbatch, PassList& passes) {
  for (const Boundary& boundary : outline.received) {
    passes.push_back({Opcode::kReceive, boundary.value, microbatch});
  }
  for (NodeId node = 0; node < static_cast<int>(outline.nodes.size()); ++node) {
    passes.push_back({Opcode::kForward, node, microbatch});
  }
  for (const Boundary& boundary : outline.sent) {
    passes.push_back({Opcode::kSend, boundary.value, microbatch});
  }
}

void AppendBackward(const Outline& outline, int microbatch, PassList& passes) {
  for (const Boundary& boundary : outline.sent) {
    passes.push_back({Opcode::kReceive, boundary.value, microbatch, /*gradient=*/true});
  }
  for (NodeId node = static_cast<int>(outline.nodes.size()) - 1; node >= 0; --node) {
    if (HasBackward(outline.nodes[node])) {
      passes.push_back({Opcode::kBackwardInput, node, microbatch});
    }
    if (HasWeightHalf(outline.nodes[node])) {
      passes.push_back({Opcode::kBackwardWeight, node, microbatch});
    }
  }
  for (const Boundary& boundary : outline.received) {
    passes.push_back({Opcode::kSend, boundary.value, microbatch, /*gradient=*/true});
  }
}

}  // namespace

PassList Sequential(const Outline& outline, int num_microbatches) {
  PassList passes;
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    AppendForward(outline, microbatch, passes);
    AppendBackward(outline, microbatch, passes);
  }
  return passes;
}

PassList ForwardOnly(const Outline& outline, int num_microbatches) {
  PassList passes;
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    AppendForward(outline, microbatch, passes);
  }
  return passes;
}

}  // namespace tandem::schedules
