// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/node_declaration.h"
#include "model/unit_parameters.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// The ranges of one unit's parameters in the flat element spaces of the unit's classes (unit_parameters.h).
// The caller computes them from fsdp's layouts, because model/ does not include fsdp/.
struct UnitLayout {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Range> parameters;  // in the order of UnitParameters::parameters
  std::vector<int64_t> elements;  // size of each class's element space, gaps included
};

// Makes the outline of one rank's model on one kind of device from the declarations of its nodes
// (node_declaration.h). `layouts` has the layout of each of DecoderUnits(config), in the same order. Throws
// std::logic_error if the layouts do not fit the configuration.
schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts);

}  // namespace tandem::model
