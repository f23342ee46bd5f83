// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/array.h"
#include "ops/latent_shape.h"
#include "ops/rope_scaling.h"

namespace tandem::ops {

// Fill the tables of ops/rope.h and ops/latent_heads.h on the host, in float or double. The functions on
// tensors, which these headers declare, are for tests.
void RopeTables(double theta, const RopeScaling& scaling, const Array& cosines, const Array& sines);
void LatentRotaryTables(const LatentHeads& heads, double theta, const RopeScaling& scaling,
                        const Array& cosines, const Array& sines);

}  // namespace tandem::ops
