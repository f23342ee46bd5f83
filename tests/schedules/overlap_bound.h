// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "schedules/program/outline.h"

namespace tandem::schedules {

// An upper bound on the bytes of locals of the overlapped schedule on a stage of L layers whose parameters
// are gathered for use. While the forward of one microbatch is in layer p, the backward of the other is in
// layer L - 1 - p, so the bound is
//
//     max over p of (activations of the layers up to p, and of the layers up to L - 1 - p)
//   + the activations outside layers, of both microbatches
//   + the gathered parameters of four layers
//   + the contributions of two layers
//   + twice what the all-to-alls of one layer write, forward and backward
//
// Activations are the values that the forward keeps for the backward. Embedding and head count as layers when
// parameters are counted. If layers differ, the largest count.
int64_t OverlapBound(const Outline& outline);

}  // namespace tandem::schedules
