// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/shape_rows.h"
#include "ops/delta_shape.h"
#include "ops/scan_shape.h"

namespace tandem::bench {

// Times the operations of a Mamba-2 mixer in bfloat16 on the current GPU, forward and backward: the causal
// convolution (width 4), the scan and the gated norm. LibTorch's version of the scan is the same chunks as
// batched products (arXiv:2405.21060, listing 1), forward alone.
void TimeMixer(const ops::ScanShape& shape, const ShapeRows& rows);

// Times a gated delta net's recurrence, forward and backward, likewise; LibTorch has none.
void TimeDeltaNet(const ops::DeltaShape& shape, const ShapeRows& rows);

}  // namespace tandem::bench
