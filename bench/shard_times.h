// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bench/shape_rows.h"

namespace tandem::bench {

// Times what fsdp/ computes over a shard of so many fp32 weights on the current GPU and stream: their initial
// values, the fold of one contribution of bfloat16 and of four, and the optimizer's pass. A
// line each, beside LibTorch's nearest.
void TimeShard(int64_t parameters, const ShapeRows& rows);

}  // namespace tandem::bench
