// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "bench/gpu_bounds.h"
#include "ops/attention_shape.h"
#include "ops/delta_shape.h"
#include "ops/scan_shape.h"

// Parts of tandem-bench-kernels, on the current GPU and stream: a line each for the operations of a kind.
namespace tandem::bench {

// Times attention of bfloat16 on the current GPU and stream, forward and backward, of whole sequences and
// within documents of 500 tokens, repeatable and not: a line each, whose floating point operations are those
// of the scores that the mask leaves, so that tiles which kernels compute in vain take from the rate. Beside
// those of whole sequences, LibTorch's: cuDNN's, and of the backward that repeats its bits its flash
// attention's, since through LibTorch cuDNN's does not. operation: what the lines call it.
void TimeAttention(const ops::AttentionShape& shape, const std::string& operation, const ShapeRows& rows);

// Times the operations of a Mamba-2 mixer in bfloat16 on the current GPU, forward and backward: the causal
// convolution (width 4), the scan and the gated norm. LibTorch's version of the scan is the same chunks as
// batched products (arXiv:2405.21060, listing 1), forward alone.
void TimeMixer(const ops::ScanShape& shape, const ShapeRows& rows);

// Times a gated delta net's recurrence, forward and backward, likewise; LibTorch has none.
void TimeDeltaNet(const ops::DeltaShape& shape, const ShapeRows& rows);

// Times the operations of fsdp/ on a shard of `parameters` fp32 weights on the current GPU and stream:
// initial values, the fold of one and of four bfloat16 contributions, and the optimizer step. Prints a line
// for each, beside LibTorch's closest operation.
void TimeShard(int64_t parameters, const ShapeRows& rows);

}  // namespace tandem::bench
