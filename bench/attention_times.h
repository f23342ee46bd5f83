// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bench/gpu_bounds.h"
#include "ops/attention_shape.h"

namespace tandem::bench {

// Times attention of bfloat16 on the current GPU and stream, forward and backward, of whole sequences and
// within documents, repeatable and not, beside cuDNN's through LibTorch: Report (gpu_bounds.h), a line each.
// operation: what the lines call it.
void TimeAttention(const ops::AttentionShape& shape, const std::string& of_shape,
                   const std::string& operation, const Bounds& bounds);

}  // namespace tandem::bench
