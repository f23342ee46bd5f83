// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/layout.h"

namespace tandem::fsdp {

// The position of one rank in the mesh that a unit is placed on, and the axes along which ranks share the
// optimizer's work. Pure arithmetic on ranges of the unit's flat buffer.
//
// The flat buffer is cut along the inner axis first, then along the outer axis: it has `inner` shards of
// `outer` pieces each. A rank's own piece is number inner_rank * outer + outer_rank.
struct UnitMesh {
  int inner = 1;  // ranks that share the unit's shards
  int inner_rank = 0;
  int outer = 1;  // number of groups of `inner` ranks; each group has the whole unit
  int outer_rank = 0;
  bool inner_shards_optimizer = true;  // if false, every rank of the inner axis updates the same elements
  bool outer_shards_optimizer = false;
  bool operator==(const UnitMesh&) const = default;
};

// Sizes in elements, padding included. They are the same on every rank.
int64_t PieceElements(const Layout& layout, const UnitMesh& mesh);   // of one of inner * outer pieces
int64_t ShardElements(const Layout& layout, const UnitMesh& mesh);   // of an inner shard: outer pieces
int64_t PaddedElements(const Layout& layout, const UnitMesh& mesh);  // of the gathered unit: inner shards

// Ranges in flat coordinates, padding included.
Range ShardRange(const Layout& layout, const UnitMesh& mesh);  // what the rank sends to a gather
Range PieceRange(const Layout& layout,
                 const UnitMesh& mesh);  // the part that no other rank has, for norm terms and checkpoints
// Weights and moments: the part that the rank updates.
Range HeldRange(const Layout& layout, const UnitMesh& mesh);
Range AccumulatorRange(const Layout& layout, const UnitMesh& mesh);  // the reduced gradient

// Returns whether this rank is the first of the ranks with this HeldRange. If the parts of all ranks are
// combined, only the part of this first rank counts.
bool CountsHeld(const UnitMesh& mesh);

// The range without the padding at the layout's end; may be empty.
Range WithoutPadding(const Layout& layout, Range range);

}  // namespace tandem::fsdp
