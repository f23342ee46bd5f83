// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/layout.h"

namespace tandem::fsdp {

// Where one rank stands among those that a unit is placed on, and along which axes they share the work of the
// optimizer. Pure arithmetic on ranges of the unit's flat buffer.
//
// Data are cut inner first, then outer: a shard of the inner axis is `outer` pieces long, so a rank's piece
// is number inner_rank * outer + outer_rank of inner * outer.
struct UnitMesh {
  int inner = 1;  // ranks that gather the unit from each other
  int inner_rank = 0;
  int outer = 1;  // groups of those; each has all of the unit
  int outer_rank = 0;
  bool inner_shards_optimizer = true;  // false: every rank of the axis updates what its peers update
  bool outer_shards_optimizer = false;
  bool operator==(const UnitMesh&) const = default;
};

// Elements, padding included; the same on every rank.
int64_t PieceElements(const Layout& layout, const UnitMesh& mesh);   // of one of inner * outer pieces
int64_t ShardElements(const Layout& layout, const UnitMesh& mesh);   // of an inner shard: outer pieces
int64_t PaddedElements(const Layout& layout, const UnitMesh& mesh);  // of the gathered unit: inner shards

// In flat coordinates, padding included.
Range ShardRange(const Layout& layout, const UnitMesh& mesh);  // what the rank sends to a gather
Range PieceRange(const Layout& layout,
                 const UnitMesh& mesh);                       // no other rank has it: norm terms, checkpoints
Range HeldRange(const Layout& layout, const UnitMesh& mesh);  // of weights and moments: what it updates
Range AccumulatorRange(const Layout& layout, const UnitMesh& mesh);  // of the reduced gradient

// Whether the rank's HeldRange counts where those of all ranks are put together: it is the first of those
// that hold the same.
bool CountsHeld(const UnitMesh& mesh);

// Without the padding behind the layout's end; may be empty.
Range WithoutPadding(const Layout& layout, Range range);

}  // namespace tandem::fsdp
