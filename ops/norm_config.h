// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::ops {

// The constants that all norms of a model share.
struct NormConfig {
  double epsilon = 0;  // added to the mean square
  double added = 0;    // added to each weight: 1 for models whose norm weights start at 0
};

}  // namespace tandem::ops
