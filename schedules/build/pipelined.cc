// SPDX-License-Identifier: Apache-2.0
// The schedules that go chunk by chunk: one microbatch after the other, and those of several stages.
#include <algorithm>
#include <utility>
#include <vector>

#include "schedules/build/schedule.h"

namespace tandem::schedules {
namespace {

constexpr int kReceivesAhead = 1;

// The work of one chunk of a stage for one microbatch in one direction.
struct ChunkPass {
  bool forward = true;
  int chunk = 0;
  int microbatch = 0;
};

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

// Lists the passes of the chunks' nodes in the order of `chunks`. Each chunk pass is followed by what it
// sends. What it receives is received `ahead` chunk passes earlier.
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

// The chunks' passes of one direction: group by group, in each chunk by chunk. Every group has a place for as
// many microbatches as there are stages: in a smaller one the last are of microbatches that are not there.
std::vector<ChunkPass> InGroups(bool forward, int num_chunks, int num_stages, int num_microbatches) {
  std::vector<ChunkPass> passes;
  for (int begin = 0; begin < num_microbatches; begin += num_stages) {
    for (int i = 0; i < num_chunks; ++i) {
      const int chunk = forward ? i : num_chunks - 1 - i;
      for (int microbatch = begin; microbatch < begin + num_stages; ++microbatch) {
        passes.push_back({.forward = forward, .chunk = chunk, .microbatch = microbatch});
      }
    }
  }
  return passes;
}

PassList PassesThatAre(const Outline& outline, int num_microbatches, std::vector<ChunkPass> chunks) {
  std::erase_if(chunks, [&](const ChunkPass& pass) { return pass.microbatch >= num_microbatches; });
  return PassesOf(outline, chunks, kReceivesAhead);
}

// Forwards before the first backward: as many as it takes until that can come, and with several chunks as
// many as keep the stages busy until then.
int WarmUp(int stage, int num_stages, int num_chunks) {
  const int behind = num_stages - 1 - stage;
  return num_chunks == 1 ? behind : 2 * behind + (num_chunks - 1) * num_stages;
}

}  // namespace

PassList Sequential(const Outline& outline, int num_microbatches) {
  const int num_chunks = NumChunks(outline);
  std::vector<ChunkPass> chunks;
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      chunks.push_back({.forward = true, .chunk = chunk, .microbatch = microbatch});
    }
    for (int chunk = num_chunks - 1; chunk >= 0; --chunk) {
      chunks.push_back({.forward = false, .chunk = chunk, .microbatch = microbatch});
    }
  }
  return PassesOf(outline, chunks, /*ahead=*/0);
}

PassList Pipelined(const Outline& outline, int num_stages, int num_microbatches) {
  const int num_chunks = NumChunks(outline);
  const std::vector<ChunkPass> forwards = InGroups(true, num_chunks, num_stages, num_microbatches);
  const std::vector<ChunkPass> backwards = InGroups(false, num_chunks, num_stages, num_microbatches);
  const size_t warm_up =
      std::min(forwards.size(), static_cast<size_t>(WarmUp(outline.stage, num_stages, num_chunks)));
  std::vector<ChunkPass> chunks(forwards.begin(), forwards.begin() + static_cast<int64_t>(warm_up));
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (i + warm_up < forwards.size()) {
      chunks.push_back(forwards[i + warm_up]);
    }
    chunks.push_back(backwards[i]);
  }
  // Without the empty places stages with few microbatches left would wait for each other: one for a forward
  // that comes from behind another's backward, and the other for the backward behind that forward.
  return PassesThatAre(outline, num_microbatches, std::move(chunks));
}

PassList ForwardOnly(const Outline& outline, int num_microbatches, int num_stages) {
  return PassesThatAre(outline, num_microbatches,
                       InGroups(true, NumChunks(outline), num_stages, num_microbatches));
}

}  // namespace tandem::schedules
