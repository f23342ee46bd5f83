// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit_mesh.h"

#include <algorithm>

namespace tandem::fsdp {

int64_t PieceElements(const Layout& layout, const UnitMesh& mesh) {
  const int64_t granules = layout.elements / kGranule;
  const int64_t pieces = int64_t{mesh.inner} * mesh.outer;
  return (granules + pieces - 1) / pieces * kGranule;
}

int64_t ShardElements(const Layout& layout, const UnitMesh& mesh) {
  return mesh.outer * PieceElements(layout, mesh);
}

int64_t PaddedElements(const Layout& layout, const UnitMesh& mesh) {
  return mesh.inner * ShardElements(layout, mesh);
}

Range ShardRange(const Layout& layout, const UnitMesh& mesh) {
  const int64_t shard = ShardElements(layout, mesh);
  return {.begin = mesh.inner_rank * shard, .end = (mesh.inner_rank + 1) * shard};
}

Range PieceRange(const Layout& layout, const UnitMesh& mesh) {
  const int64_t piece = PieceElements(layout, mesh);
  const int64_t begin = ShardRange(layout, mesh).begin + mesh.outer_rank * piece;
  return {.begin = begin, .end = begin + piece};
}

Range HeldRange(const Layout& layout, const UnitMesh& mesh) {
  if (!mesh.inner_shards_optimizer) {
    return {.begin = 0, .end = PaddedElements(layout, mesh)};
  }
  return mesh.outer_shards_optimizer ? PieceRange(layout, mesh) : ShardRange(layout, mesh);
}

Range AccumulatorRange(const Layout& layout, const UnitMesh& mesh) {
  return mesh.inner_shards_optimizer ? ShardRange(layout, mesh) : HeldRange(layout, mesh);
}

bool CountsHeld(const UnitMesh& mesh) {
  return (mesh.inner_shards_optimizer || mesh.inner_rank == 0) &&
         (mesh.outer_shards_optimizer || mesh.outer_rank == 0);
}

Range WithoutPadding(const Layout& layout, Range range) {
  return {.begin = std::min(layout.elements, range.begin), .end = std::min(layout.elements, range.end)};
}

}  // namespace tandem::fsdp
