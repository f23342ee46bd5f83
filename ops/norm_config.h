// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::ops {

// What the norms of a model share.
struct NormConfig {
  double epsilon = 0;  // is added to the mean square
  double added = 0;    // to each weight: 1 where weights start at 0
};

}  // namespace tandem::ops
