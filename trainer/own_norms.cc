// SPDX-License-Identifier: Apache-2.0
#include "trainer/own_norms.h"

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"

namespace tandem::trainer {

std::vector<OwnNorm> OwnNormsOf(const plan::JobPlan& plan, int rank) {
  const std::vector<size_t> in_table = plan::TrainedParametersOf(plan, rank);
  const std::vector<fsdp::ClassLayouts> layouts = plan::LayoutsOf(plan, rank);
  std::vector<OwnNorm> own;
  size_t in_run = 0;
  for (size_t unit = 0; unit < layouts.size(); ++unit) {
    if (plan.outline.units[unit].frozen) {
      continue;
    }
    const fsdp::UnitMesh mesh = plan::MeshOf(plan, unit, rank);
    for (const fsdp::Layout& layout : layouts[unit]) {
      std::vector<bool> counts(layout.parameters.size(), false);
      if (CountsHeld(mesh)) {
        for (const fsdp::Piece& piece : PiecesOf(layout, HeldRange(layout, mesh))) {
          counts[piece.parameter] = true;
        }
      }
      for (const bool counted : counts) {
        if (counted) {
          own.push_back({.in_run = in_run, .in_table = static_cast<int64_t>(in_table.at(in_run))});
        }
        ++in_run;
      }
    }
  }
  return own;
}

}  // namespace tandem::trainer
