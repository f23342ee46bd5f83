// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// Where the parameters of one unit lie in its flat buffer, in elements; written from fsdp's layout, which
// model/ does not know.
struct UnitLayout {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<Range> parameters;  // in the order of UnitParameters::parameters
  int64_t elements = 0;           // of the buffer, gaps included
};

// The outline of one rank's model on one kind of device, made from what its kinds of nodes declare
// (node_declaration.h). layouts:
// of the units of DecoderUnits(config), in their order. Throws std::logic_error where they do not fit each
// other.
schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts);

}  // namespace tandem::model
