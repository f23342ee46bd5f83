// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "schedules/build/chunk_passes.h"
#include "schedules/build/schedule.h"

namespace tandem::schedules {

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

}  // namespace tandem::schedules
