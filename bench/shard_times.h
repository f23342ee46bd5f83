// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bench/shape_rows.h"

namespace tandem::bench {

// Times the operations of fsdp/ on a shard of `parameters` fp32 weights on the current GPU and stream:
// initial values, the fold of one and of four bfloat16 contributions, and the optimizer step. Prints a line
// for each, beside LibTorch's closest operation.
void TimeShard(int64_t parameters, const ShapeRows& rows);

}  // namespace tandem::bench
