// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {

// Sizes of a unit's small buffers. They are the same on every rank and every kind of device, so that one
// program fits all.
struct UnitBufferBytes {
  int64_t norm_terms = 0;         // for one run: UnitNormTerms, and the partial sums of a GPU's blocks
  int64_t update_norms = 0;       // for one run: ParameterNorms of each parameter
  int64_t optimizer_scratch = 0;  // while OptimizerStep runs
};

// element_bytes: of the main type, 4 or 8. The same for every rank of the mesh.
UnitBufferBytes BufferBytesOf(const Layout& layout, const UnitMesh& mesh, int element_bytes);

// Of all classes of a unit; there is nothing of a class without elements.
UnitBufferBytes BufferBytesOf(const ClassLayouts& layouts, const UnitMesh& mesh, int element_bytes);

int64_t InputsBytes();  // RunInputs

// NormOutcome, followed by room for the terms of `ranks` ranks, which GradientNorm exchanges.
int64_t OutcomeBytes(int ranks);

// Where those terms begin.
constexpr int64_t kExchangeOffset = 64;

// Chunks in a tile. One block of a GPU works on one tile at a time: 8 lanes per chunk, 32 chunks at once.
constexpr int kTileChunks = 256;

// Chunks that the host's optimizer works on at a time: a block stays in the first-level cache from the update
// to the sums.
constexpr int kBlockChunks = 16;

// The most blocks of the last reduction that leave a partial sum.
constexpr int kMaxTermBlocks = 1024;

// The largest number of tiles in a range of `elements` elements. Tiles of a parameter end at multiples of
// kTileChunks granules of the unit.
int64_t MaxTiles(const Layout& layout, int64_t elements);

}  // namespace tandem::fsdp
