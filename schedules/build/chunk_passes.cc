// SPDX-License-Identifier: Apache-2.0
#include "schedules/build/chunk_passes.h"

#include <algorithm>

namespace tandem::schedules {
namespace {

// The exchanges of the pass's chunk with other stages: kReceive or kSend. A gradient goes the other way.
void AppendExchanges(Opcode opcode, const Outline& outline, const ChunkPass& pass, PassList& passes) {
  const bool comes_in_forward = (opcode == Opcode::kReceive) == pass.forward;
  for (const Boundary& boundary : comes_in_forward ? outline.received : outline.sent) {
    if (boundary.chunk == pass.chunk) {
      passes.push_back({opcode, boundary.value, pass.microbatch, /*gradient=*/!pass.forward});
    }
  }
}

void AppendNodes(const Outline& outline, const ChunkPass& pass, PassList& passes) {
  const int num_nodes = static_cast<int>(outline.nodes.size());
  for (int i = 0; i < num_nodes; ++i) {
    const NodeId node = pass.forward ? i : num_nodes - 1 - i;
    if (outline.nodes[node].chunk != pass.chunk) {
      continue;
    }
    if (pass.forward) {
      passes.push_back({Opcode::kForward, node, pass.microbatch});
      continue;
    }
    if (HasBackward(outline.nodes[node])) {
      passes.push_back({Opcode::kBackwardInput, node, pass.microbatch});
    }
    if (HasWeightHalf(outline.nodes[node])) {
      passes.push_back({Opcode::kBackwardWeight, node, pass.microbatch});
    }
  }
}

}  // namespace

PassList PassesOf(const Outline& outline, const std::vector<ChunkPass>& chunks, int ahead) {
  PassList passes;
  size_t received = 0;  // chunks' passes whose receives are there
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (const size_t end = std::min(i + ahead + 1, chunks.size()); received < end; ++received) {
      AppendExchanges(Opcode::kReceive, outline, chunks[received], passes);
    }
    AppendNodes(outline, chunks[i], passes);
    AppendExchanges(Opcode::kSend, outline, chunks[i], passes);
  }
  return passes;
}

}  // namespace tandem::schedules
