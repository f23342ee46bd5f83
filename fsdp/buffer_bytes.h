// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {

// How large the small buffers beside a unit's shards are: the same on every rank and on every kind of device,
// so that one program fits all.
struct UnitBufferBytes {
  int64_t norm_terms = 0;         // of one run: UnitNormTerms, and what a GPU's blocks leave of it
  int64_t update_norms = 0;       // of one run: ParameterNorms of each parameter
  int64_t optimizer_scratch = 0;  // while OptimizerStep runs
};

// element_bytes: of the main type, 4 or 8. The same for every rank of the mesh.
UnitBufferBytes BufferBytesOf(const Layout& layout, const UnitMesh& mesh, int element_bytes);

int64_t InputsBytes();  // RunInputs

// NormOutcome, and behind it room for the terms of the `ranks` that GradientNorm exchanges.
int64_t OutcomeBytes(int ranks);

// Where those terms begin.
constexpr int64_t kExchangeOffset = 64;

// Chunks of a tile, which one block of a GPU works on at a time: 8 lanes a chunk, 32 chunks at a time.
constexpr int kTileChunks = 256;

// Chunks that the host's optimizer works on at a time: a block stays in the first-level cache from the update
// to the sums.
constexpr int kBlockChunks = 16;

// The most blocks of the last reduction that leave a partial sum.
constexpr int kMaxTermBlocks = 1024;

// Tiles of a range of so many elements, at most: a parameter's tiles end at multiples of kTileChunks granules
// of the unit.
int64_t MaxTiles(const Layout& layout, int64_t elements);

}  // namespace tandem::fsdp
