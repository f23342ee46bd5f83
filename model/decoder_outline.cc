// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_outline.h"

#include "model/decoder_shapes.h"
#include "model/node_kinds.h"

namespace tandem::model {

schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts) {
  std::vector<DeclaredPlace> nodes;
  for (const DecoderNode& node : DecoderNodeList(config)) {
    const NodeTypes types(precision, node.unit);
    const DecoderShapes shapes(config, batch, types.unit.compute, device, types.repeats);
    nodes.push_back({.name = node.name,
                     .layer = node.layer,
                     .unit = node.unit,
                     .declaration = Declare(node.kind, shapes)});
    FreezeParts(config, node.unit, shapes, nodes.back().declaration);
  }
  const TensorSpec tokens = BatchTokens({config, batch, precision.hidden(), device}).tensor;
  return WriteOutline(nodes, tokens, DecoderUnits(config), layouts, precision);
}

}  // namespace tandem::model
