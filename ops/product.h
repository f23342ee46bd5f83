// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/array.h"
#include "ops/workspace.h"

namespace tandem::ops {

// output = addend + factor a b. Types and strides are as for the matrix products of Operations. addend, if
// defined, has output's shape and may be output itself. work: at least LinearWorkBytes (linear_work.h).
struct ProductArgs {
  Array a;  // [M, K]
  Array b;  // [K, N]
  Array addend;
  Array output;  // [M, N]
  Workspace work;
  double factor = 1;
};

}  // namespace tandem::ops
