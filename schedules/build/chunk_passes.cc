// SPDX-License-Identifier: Apache-2.0
#include "schedules/build/chunk_passes.h"

#include <algorithm>

namespace tandem::schedules {
namespace {

// A gradient goes the other way.
void AppendReceives(const Outline& outline, const ChunkPass& pass, PassList& passes) {
  for (const Boundary& boundary : pass.forward ? outline.received : outline.sent) {
    if (boundary.chunk == pass.chunk) {
      passes.push_back({Opcode::kReceive, boundary.value, pass.microbatch, /*gradient=*/!pass.forward});
    }
  }
}

void AppendSends(const Outline& outline, const ChunkPass& pass, PassList& passes) {
  for (const Boundary& boundary : pass.forward ? outline.sent : outline.received) {
    if (boundary.chunk == pass.chunk) {
      passes.push_back({Opcode::kSend, boundary.value, pass.microbatch, /*gradient=*/!pass.forward});
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
      AppendReceives(outline, chunks[received], passes);
    }
    AppendNodes(outline, chunks[i], passes);
    AppendSends(outline, chunks[i], passes);
  }
  return passes;
}

}  // namespace tandem::schedules
