// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "bench/gpu_bounds.h"
#include "ops/attention_shape.h"
#include "ops/delta_shape.h"
#include "ops/scan_shape.h"

// Parts of tandem-bench-kernels. Each times the operations of one kind on the current GPU and stream and
// prints a line for each through `rows`.
namespace tandem::bench {

// Times attention in bfloat16, forward and backward, over whole sequences and within documents of 500 tokens;
// the backward both with and without repeatable bits. Only the scores that the mask leaves count as FLOPs, so
// masked tiles that a kernel computes lower its rate. LibTorch's time, for whole sequences only, is that of
// cuDNN's attention, but for the repeatable backward that of its flash attention, because LibTorch's cuDNN
// backward does not repeat its bits. `operation` is its name in the lines.
void TimeAttention(const ops::AttentionShape& shape, const std::string& operation, const ShapeRows& rows);

// Times the operations of a Mamba-2 mixer in bfloat16, forward and backward: the causal convolution (width
// 4), the scan and the gated norm. LibTorch's version of the scan, for the forward only, is the same chunks
// as batched products (arXiv:2405.21060, listing 1).
void TimeMixer(const ops::ScanShape& shape, const ShapeRows& rows);

// Times a gated delta net's recurrence in bfloat16, forward and backward. LibTorch has none.
void TimeDeltaNet(const ops::DeltaShape& shape, const ShapeRows& rows);

// Times the operations of fsdp/ on a shard of `parameters` fp32 weights, each beside LibTorch's closest
// operation: initial values, the fold of one and of four bfloat16 contributions, and the optimizer step.
void TimeShard(int64_t parameters, const ShapeRows& rows);

}  // namespace tandem::bench
