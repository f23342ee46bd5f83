// SPDX-License-Identifier: Apache-2.0
#include "ops/window_starts.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::WindowStarts(int64_t window, const Array& documents, const Array& starts) const {
  const DeviceKind on = kernels_.kind();
  Check(window > 0, "a window of ", window, " tokens");
  CheckMatrix("starts", starts, starts.rows, starts.columns, on);
  DocumentStarts of_documents;
  if (documents.defined()) {
    CheckRows("documents", documents, on);
    Check(documents.rows == starts.rows && documents.columns == starts.columns, "documents must be ",
          starts.shape(), ", not ", documents.shape());
    of_documents = {.starts = ElementsOf<int64_t>(documents), .stride = documents.row_stride};
  }
  return kernels_.Bind(WindowStartsArgs{.documents = of_documents,
                                        .sequences = starts.rows,
                                        .length = starts.columns,
                                        .window = window,
                                        .starts = ElementsOf<int64_t>(starts)});
}

}  // namespace tandem::ops
