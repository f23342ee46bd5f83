// SPDX-License-Identifier: Apache-2.0
#include "ops/window_starts.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::WindowStarts(int64_t window, const Array& documents, const Array& starts) const {
  const DeviceKind on = kernels_.kind();
  Check(window > 0, "a window must have at least 1 token, not ", window);
  return kernels_.Bind(
      WindowStartsArgs{.documents = DocumentsOf(documents, starts.rows, starts.columns, on),
                       .sequences = starts.rows,
                       .length = starts.columns,
                       .window = window,
                       .starts = MatrixOf<int64_t>("starts", starts, starts.rows, starts.columns, on)});
}

}  // namespace tandem::ops
