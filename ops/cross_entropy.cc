// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::CrossEntropy(const Array& logits, const Array& targets, const Array& lse, const Array& loss,
                              const Array& grad_logits, double weight) const {
  CheckMatrix("logits", logits, targets.elements(), logits.columns, kernels_.kind());
  return CrossEntropyChunk(logits, targets, /*first=*/0, lse, loss, grad_logits, weight);
}

Call Operations::CrossEntropyChunk(const Array& logits, const Array& targets, int64_t first, const Array& lse,
                                   const Array& loss, const Array& grad_logits, double weight) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = logits.rows;
  const int64_t columns = logits.columns;
  const int64_t tokens = targets.elements();
  Check(first >= 0 && first + rows <= tokens, "a chunk of ", rows, " rows of logits from ", first,
        " on is not within ", tokens, " tokens");
  return WithElementType(logits, [&]<typename E>(E) {
    return kernels_.Bind(
        CrossEntropyArgs<E>{.logits = MatrixOf<E>("logits", logits, rows, columns, on),
                            .targets = TokensOf(targets, on),
                            .first = first,
                            .rows = rows,
                            .columns = columns,
                            .lse = ElementsOf<Arithmetic<E>>("lse", lse, tokens, on),
                            .loss = ElementsOf<double>("loss", loss, 1, on),
                            .grad_logits = MatrixOf<E>("grad_logits", grad_logits, rows, columns, on),
                            .weight = weight});
  });
}

}  // namespace tandem::ops
