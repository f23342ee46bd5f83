// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/node_declaration.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// Where the parameters of one unit lie in the flat element spaces of their classes (unit_classes.h); written
// from fsdp's layouts, which model/ does not know.
struct UnitLayout {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Range> parameters;  // in the order of UnitParameters::parameters
  std::vector<int64_t> elements;  // by class, gaps included
};

// A node of a model, as an outline is written from it.
struct DeclaredPlace {
  std::string name;  // "layers.3.attention"
  std::string kind;  // "attention"
  int layer = -1;    // -1: not in a layer
  std::string unit;  // that its own parts belong to: "layers.3"
  NodeDeclaration declaration;
};

// The outline of one rank's model: nodes in forward order, which read the batch and each other's outputs, and
// the units that their parts belong to, with their layouts in the same order. Throws std::logic_error where
// they do not fit each other.
schedules::Outline WriteOutline(const std::vector<DeclaredPlace>& nodes, const TensorSpec& batch,
                                const std::vector<UnitParameters>& units,
                                const std::vector<UnitLayout>& layouts, const Precision& precision);

// The outline of one rank's model on one kind of device, made from what its kinds of nodes declare
// (node_declaration.h). layouts: of the units of DecoderUnits(config), in their order. Throws
// std::logic_error where they do not fit each other.
schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts);

}  // namespace tandem::model
