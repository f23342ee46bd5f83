// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The decoder that a resolved spec describes, with no frozen units. Requires a block `model` that Validate
// accepts. Throws std::logic_error for an unknown architecture.
model::DecoderConfig ModelConfigOf(const v1::Model& resolved);

}  // namespace tandem::jobspec
