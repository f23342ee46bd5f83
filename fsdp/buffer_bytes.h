// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {

// Sizes of a unit's small buffers, in bytes. They are the same on every rank and every kind of device, so
// that all ranks have the same program.
struct UnitBufferBytes {
  int64_t norm_terms = 0;         // written in every run: UnitNormTerms, then partial sums of a GPU's blocks
  int64_t update_norms = 0;       // written in every run: ParameterNorms of each parameter
  int64_t optimizer_scratch = 0;  // used while OptimizerStep runs
};

// `element_bytes` is the size of the main type, 4 or 8.
UnitBufferBytes BufferBytesOf(const Layout& layout, const UnitMesh& mesh, int element_bytes);

// Sums the sizes of all classes of a unit; a class without elements needs nothing.
UnitBufferBytes BufferBytesOf(const ClassLayouts& layouts, const UnitMesh& mesh, int element_bytes);

int64_t InputsBytes();  // size of RunInputs

// The size of an outcome buffer: a NormOutcome, then (from byte kExchangeOffset on) the NormTerms of `ranks`
// ranks, which GradientNorm exchanges.
int64_t OutcomeBytes(int ranks);

// The offset of the NormTerms in an outcome buffer, in bytes.
constexpr int64_t kExchangeOffset = 64;

// A thread block of a GPU works on one tile at a time. A tile has this many chunks (of kGranule elements,
// host_loops.h); the block works on 32 of them at once, with 8 threads for each.
constexpr int kTileChunks = 256;

// The number of chunks that the host's optimizer works on at a time. This many stay in the first-level cache
// from the update to the sums of their norms.
constexpr int kBlockChunks = 16;

// The largest number of thread blocks of a reduction. Each writes a partial sum.
constexpr int kMaxTermBlocks = 1024;

// The largest number of tiles that a range of `elements` elements can have. A tile ends at a multiple of
// kTileChunks granules of the flat buffer, or at the end of its parameter.
int64_t MaxTiles(const Layout& layout, int64_t elements);

}  // namespace tandem::fsdp
