// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bench/shape_rows.h"
#include "ops/attention_shape.h"

namespace tandem::bench {

// Times attention of bfloat16 on the current GPU and stream, forward and backward, of whole sequences and
// within documents of 500 tokens, repeatable and not: a line each, whose floating point operations are those
// of the scores that the mask leaves, so that tiles which kernels compute in vain take from the rate. Beside
// those of whole sequences, LibTorch's: cuDNN's, and of the backward that repeats its bits its flash
// attention's, since through LibTorch cuDNN's does not. operation: what the lines call it.
void TimeAttention(const ops::AttentionShape& shape, const std::string& operation, const ShapeRows& rows);

}  // namespace tandem::bench
