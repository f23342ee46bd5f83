// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/node_declaration.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// Where the parameters of one unit lie in the flat element spaces of its classes (unit_classes.h). The caller
// fills it from fsdp's layouts, because model/ does not include fsdp/.
struct UnitLayout {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Range> parameters;  // in the order of UnitParameters::parameters
  std::vector<int64_t> elements;  // size of each class's element space, gaps included
};

// A node of a model, as WriteOutline takes it.
struct DeclaredPlace {
  std::string name;  // "layers.3.attention"
  std::string kind;  // "attention"
  int layer = -1;    // -1 if it is not in a layer
  std::string unit;  // the unit of its own parts: "layers.3"
  NodeDeclaration declaration;
};

// Writes the outline of one rank's model: its nodes in forward order, which read the batch and each other's
// outputs, and the units that their parts belong to. `units` and `layouts` have the same order. Throws
// std::logic_error if the arguments contradict each other.
schedules::Outline WriteOutline(const std::vector<DeclaredPlace>& nodes, const TensorSpec& batch,
                                const std::vector<UnitParameters>& units,
                                const std::vector<UnitLayout>& layouts, const Precision& precision);

// Makes the outline of one rank's model on one kind of device from the declarations of its nodes
// (node_declaration.h). `layouts` are those of DecoderUnits(config), in the same order. Throws
// std::logic_error if they do not fit the configuration.
schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts);

}  // namespace tandem::model
