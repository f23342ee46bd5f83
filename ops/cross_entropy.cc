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
  const Tokens ids = TokensOf(targets, on);
  const int64_t rows = logits.rows;
  const int64_t tokens = targets.elements();
  CheckMatrix("logits", logits, rows, logits.columns, on);
  Check(first >= 0 && first + rows <= tokens, "a chunk of ", rows, " rows of logits from ", first,
        " on is not within ", tokens, " tokens");
  CheckElements("lse", lse, tokens, on);
  CheckElements("loss", loss, 1, on);
  CheckMatrix("grad_logits", grad_logits, rows, logits.columns, on);
  return WithElementType(logits, [&]<typename E>(E) {
    return kernels_.Bind(CrossEntropyArgs<E>{.logits = ElementsOf<E>(logits),
                                             .targets = ids,
                                             .first = first,
                                             .rows = rows,
                                             .columns = logits.columns,
                                             .lse = ElementsOf<Arithmetic<E>>(lse),
                                             .loss = ElementsOf<double>(loss),
                                             .grad_logits = ElementsOf<E>(grad_logits),
                                             .weight = weight});
  });
}

}  // namespace tandem::ops
