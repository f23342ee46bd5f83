// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {

// Sizes of a unit's small buffers, in bytes. They are the same on every rank and every kind of device, so
// that all share one program.
struct UnitBufferBytes {
  int64_t norm_terms = 0;         // in each run: UnitNormTerms, and the partial sums of a GPU's blocks
  int64_t update_norms = 0;       // in each run: ParameterNorms of each parameter
  int64_t optimizer_scratch = 0;  // used while OptimizerStep runs
};

// `element_bytes` is the size of the main type, 4 or 8. The result is the same for every rank of the mesh.
UnitBufferBytes BufferBytesOf(const Layout& layout, const UnitMesh& mesh, int element_bytes);

// Sums the sizes of all classes of a unit; a class without elements needs nothing.
UnitBufferBytes BufferBytesOf(const ClassLayouts& layouts, const UnitMesh& mesh, int element_bytes);

int64_t InputsBytes();  // size of RunInputs

// The size of a NormOutcome and, behind it, the terms of `ranks` ranks, which GradientNorm exchanges.
int64_t OutcomeBytes(int ranks);

// Where these terms begin, in bytes behind the NormOutcome's first byte.
constexpr int64_t kExchangeOffset = 64;

// Chunks in a tile. One block of a GPU works on one tile at a time: 8 lanes per chunk, 32 chunks at once.
constexpr int kTileChunks = 256;

// The number of chunks that the host's optimizer works on at a time. Such a block stays in the first-level
// cache from the update to the sums.
constexpr int kBlockChunks = 16;

// The largest number of blocks of a reduction that each leave a partial sum.
constexpr int kMaxTermBlocks = 1024;

// The largest number of tiles that a range of `elements` elements can have. A tile ends at a multiple of
// kTileChunks granules of the unit, or with its parameter.
int64_t MaxTiles(const Layout& layout, int64_t elements);

}  // namespace tandem::fsdp
