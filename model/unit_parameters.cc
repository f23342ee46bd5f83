// SPDX-License-Identifier: Apache-2.0
#include "model/unit_parameters.h"

#include <algorithm>
#include <utility>

#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Adds the parts of `node` that belong to its own unit.
void AddParts(ParameterNames names, const DecoderNode& node, const NodeDeclaration& declaration,
              UnitParameters& unit) {
  for (const PartSpec& part : declaration.parts) {
    if (!part.unit.empty()) {
      continue;  // the part belongs to another unit
    }
    unit.parts.push_back({part.name, part.main_type});
    std::string block;
    int blocks = 0;
    for (const Parameter& parameter : unit.parameters) {
      blocks = std::max(blocks, parameter.block + 1);
    }
    for (const ParameterSpec& parameter : part.parameters) {
      blocks += parameter.block.empty() || parameter.block == block ? 0 : 1;
      block = parameter.block;
      unit.parameters.push_back({.name = HuggingFaceName(names, node, parameter.name),
                                 .shape = parameter.shape,
                                 .part = static_cast<int>(unit.parts.size()) - 1,
                                 .block = block.empty() ? -1 : blocks - 1,
                                 .init = parameter.init});
    }
  }
}

// Puts parts in the main type after the others, so that parts with the same types are adjacent, whatever the
// unit's compute type is.
void OrderByType(UnitParameters& unit) {
  std::vector<UnitParameters::Part> parts;
  std::vector<int> places(unit.parts.size());
  for (const bool main_type : {false, true}) {
    for (size_t i = 0; i < unit.parts.size(); ++i) {
      if (unit.parts[i].main_type == main_type) {
        places[i] = static_cast<int>(parts.size());
        parts.push_back(unit.parts[i]);
      }
    }
  }
  unit.parts = std::move(parts);
  for (Parameter& parameter : unit.parameters) {
    parameter.part = places[parameter.part];
  }
  std::stable_sort(unit.parameters.begin(), unit.parameters.end(),
                   [](const Parameter& a, const Parameter& b) { return a.part < b.part; });
}

}  // namespace

std::vector<UnitParameters> DecoderUnits(const DecoderConfig& config) {
  // Parameters do not depend on the batch.
  const BatchShape batch{.sequences = 1, .sequence_length = 1 + config.depths.number};
  std::vector<UnitParameters> units;
  int layer = static_cast<int>(config.num_layers());
  for (const DecoderNode& node : DecoderNodeList(config)) {
    auto unit = std::find_if(units.begin(), units.end(), [&](const auto& u) { return u.name == node.unit; });
    if (unit == units.end()) {
      unit = units.insert(units.end(), {.name = node.unit,
                                        .layer = node.layer < 0 ? layer++ : node.layer,
                                        .experts = node.kind->experts,
                                        .frozen = IsFrozen(config, node.unit)});
    }
    const NodeTypes types(ComputeType::kFp32, node.unit);
    const DecoderShapes shapes = ShapesOf(node, config, batch, types, DeviceKind::kCpu);
    AddParts(config.names, node, DeclarationOf(node, shapes), *unit);
  }
  for (UnitParameters& unit : units) {
    OrderByType(unit);
  }
  return units;
}

UnitTypes TypesOf(const UnitParameters& unit, int part, const Precision& precision) {
  const UnitTypes& types = precision.Of(unit.name);
  return unit.parts.at(part).main_type ? InMainType(types) : types;
}

UnitClasses ClassesOf(const UnitParameters& unit, const Precision& precision) {
  UnitClasses classes;
  for (int part = 0; part < static_cast<int>(unit.parts.size()); ++part) {
    const UnitTypes types = TypesOf(unit, part, precision);
    if (classes.types.empty() || classes.types.back() != types) {
      classes.types.push_back(types);
    }
    classes.of_part.push_back(static_cast<int>(classes.types.size()) - 1);
  }
  return classes;
}

}  // namespace tandem::model
