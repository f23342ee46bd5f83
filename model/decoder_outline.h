// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/config.h"
#include "model/outline_writer.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// The outline of one rank's model on one kind of device, made from what its kinds of nodes declare
// (node_declaration.h). layouts:
// of the units of DecoderUnits(config), in their order. Throws std::logic_error where they do not fit each
// other.
schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts);

}  // namespace tandem::model
