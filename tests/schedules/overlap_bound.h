// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "schedules/program/outline.h"

namespace tandem::schedules {

// The most bytes of locals that the overlapped schedule may take on a stage of L layers where parameters are
// gathered for use. While the forward of one microbatch is in layer p, the backward of the other is in layer
// L - 1 - p, so it is
//
//     max over p of (activations of the layers up to p, and of the layers up to L - 1 - p)
//   + the activations outside layers, of both microbatches
//   + the gathered parameters of four layers
//   + the contributions of two layers
//   + twice what the all-to-alls of one layer write, forward and backward
//
// Activations are what the forward leaves to the backward. Embedding and head count as layers of parameters;
// of layers that differ the largest count.
int64_t OverlapBound(const Outline& outline);

}  // namespace tandem::schedules
