// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/array.h"
#include "ops/workspace.h"

namespace tandem::ops {

// output = addend + a b, with views as Operations describes for its products. `addend` has the shape of
// `output`, may be `output` itself, or is undefined for no addend. `work` has at least LinearWorkBytes
// (linear_work.h).
struct ProductArgs {
  Array a;  // [M, K]
  Array b;  // [K, N]
  Array addend;
  Array output;  // [M, N]
  Workspace work;
};

}  // namespace tandem::ops
