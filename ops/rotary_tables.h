// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/array.h"
#include "ops/latent_shape.h"
#include "ops/rope_scaling.h"

namespace tandem::ops {

// Fills tables of ops/rope.h on the host, [S, r / 2], with cosine and sine of position times frequency, times
// the scaling's attention factor, computed in double. The tables are of the arithmetic type: double or float.
void RopeTables(double theta, const RopeScaling& scaling, const Array& cosines, const Array& sines);

// Fills the tables, [S, d / 2], of the heads that ops/latent_heads.h packs. The first rotary / 2 columns
// rotate; the others leave their elements unchanged, bit for bit. With yarn and an mscale_all_dim, all
// columns also multiply by 0.1 mscale_all_dim ln(factor) + 1, because DeepSeek's attention multiplies the
// products of queries and keys by the square of that.
void LatentRotaryTables(const LatentHeads& heads, double theta, const RopeScaling& scaling,
                        const Array& cosines, const Array& sines);

}  // namespace tandem::ops
