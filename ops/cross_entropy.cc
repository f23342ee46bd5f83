// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void Operations::CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse,
                              at::Tensor& loss, at::Tensor& grad_logits) const {
  CheckMatrix("logits", logits, targets.numel(), logits.size(1), kernels_.kind());
  CrossEntropyChunk(logits, targets, /*first=*/0, lse, loss, grad_logits);
}

void Operations::CrossEntropyChunk(const at::Tensor& logits, const at::Tensor& targets, int64_t first,
                                   at::Tensor& lse, at::Tensor& loss, at::Tensor& grad_logits) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(targets, on);
  const int64_t rows = logits.size(0);
  const int64_t tokens = targets.numel();
  CheckMatrix("logits", logits, rows, logits.size(1), on);
  TORCH_CHECK(first >= 0 && first + rows <= tokens, "a chunk of ", rows, " rows of logits from ", first,
              " on is not within ", tokens, " tokens");
  CheckElements("lse", lse, tokens, on);
  CheckElements("loss", loss, 1, on);
  CheckMatrix("grad_logits", grad_logits, rows, logits.size(1), on);
  WithElementType(logits, [&]<typename E>(E) {
    kernels_.Run(CrossEntropyArgs<E>{.logits = ElementsOf<E>(logits),
                                     .targets = ids,
                                     .first = first,
                                     .rows = rows,
                                     .columns = logits.size(1),
                                     .lse = MutableElementsOf<Arithmetic<E>>(lse),
                                     .loss = loss.mutable_data_ptr<double>(),
                                     .grad_logits = MutableElementsOf<E>(grad_logits)});
  });
}

}  // namespace tandem::ops
