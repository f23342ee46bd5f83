// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/bf16.h"

namespace tandem::fsdp {

// accumulator[i] = (((accumulator[i] + c0[i]) + c1[i]) + …), with contribution r at contributions + r *
// stride. If add == false, c0 overwrites. Elements are independent, so the bits do not depend on how they are
// cut into calls.
void Fold(float* accumulator, const float* contributions, int64_t elements, int64_t stride,
          int num_contributions, bool add);
void Fold(double* accumulator, const double* contributions, int64_t elements, int64_t stride,
          int num_contributions, bool add);
// bfloat16 contributions are added in float.
void Fold(float* accumulator, const Bf16* contributions, int64_t elements, int64_t stride,
          int num_contributions, bool add);

}  // namespace tandem::fsdp
