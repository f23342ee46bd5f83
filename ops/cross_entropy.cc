// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Throws unless logits are [rows, C], columns [first, first + C) of the vocabulary's.
void CheckBlock(const at::Tensor& logits, int64_t rows, int64_t first, int64_t vocabulary, DeviceKind on) {
  CheckMatrix("logits", logits, rows, logits.size(1), on);
  TORCH_CHECK(first >= 0 && first + logits.size(1) <= vocabulary, "a block of ", logits.size(1),
              " logits from ", first, " on is not within a vocabulary of ", vocabulary);
}

}  // namespace

void Operations::CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse,
                              at::Tensor& loss, at::Tensor& grad_logits) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(targets, on);
  const int64_t rows = targets.numel();
  CheckMatrix("logits", logits, rows, logits.size(1), on);
  CheckElements("lse", lse, rows, on);
  CheckElements("loss", loss, 1, on);
  CheckMatrix("grad_logits", grad_logits, rows, logits.size(1), on);
  WithElementType(logits, [&]<typename E>(E) {
    kernels_.Run(CrossEntropyArgs<E>{.logits = ElementsOf<E>(logits),
                                     .targets = ids,
                                     .columns = logits.size(1),
                                     .lse = MutableElementsOf<Arithmetic<E>>(lse),
                                     .loss = loss.mutable_data_ptr<double>(),
                                     .grad_logits = MutableElementsOf<E>(grad_logits)});
  });
}

void Operations::CrossEntropyBlock(const at::Tensor& logits, const at::Tensor& targets, int64_t first,
                                   int64_t vocabulary, at::Tensor& lse, at::Tensor& target_logits,
                                   at::Tensor& loss) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(targets, on);
  CheckBlock(logits, targets.numel(), first, vocabulary, on);
  CheckElements("lse", lse, targets.numel(), on);
  CheckElements("target_logits", target_logits, targets.numel(), on);
  CheckElements("loss", loss, 1, on);
  WithElementType(logits, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    kernels_.Run(CrossEntropyBlockArgs<E>{.logits = ElementsOf<E>(logits),
                                          .targets = ids,
                                          .first = first,
                                          .columns = logits.size(1),
                                          .vocabulary = vocabulary,
                                          .lse = MutableElementsOf<T>(lse),
                                          .target_logits = MutableElementsOf<T>(target_logits),
                                          .loss = loss.mutable_data_ptr<double>()});
  });
}

void Operations::CrossEntropyBlockBackward(const at::Tensor& targets, int64_t first, int64_t vocabulary,
                                           const at::Tensor& lse, at::Tensor& logits) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(targets, on);
  CheckBlock(logits, targets.numel(), first, vocabulary, on);
  CheckElements("lse", lse, targets.numel(), on);
  WithElementType(logits, [&]<typename E>(E) {
    kernels_.Run(CrossEntropyBlockBackwardArgs<E>{.targets = ids,
                                                  .first = first,
                                                  .columns = logits.size(1),
                                                  .vocabulary = vocabulary,
                                                  .lse = ElementsOf<Arithmetic<E>>(lse),
                                                  .logits = MutableElementsOf<E>(logits)});
  });
}

}  // namespace tandem::ops
