// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <ATen/core/Tensor.h>

#include <type_traits>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void Operations::Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(tokens, on);
  CheckMatrix("weight", weight, weight.size(0), weight.size(1), on);
  CheckMatrix("output", output, tokens.numel(), weight.size(1), on);
  WithElementType(weight, [&]<typename E>(E) {
    kernels_.Run(EmbeddingArgs<E>{ids, ElementsOf<E>(weight), weight.size(0), weight.size(1),
                                  MutableElementsOf<E>(output)});
  });
}

void Operations::EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                                   at::Tensor& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(tokens, on);
  CheckMatrix("grad_weight", grad_weight, grad_weight.size(0), grad_weight.size(1), on);
  CheckMatrix("grad_output", grad_output, tokens.numel(), grad_weight.size(1), on);
  CheckWork("EmbeddingBackward", work, EmbeddingBackwardWorkBytes(on, tokens.numel()));
  WithElementType(grad_output, [&]<typename E>(E) {
    EmbeddingBackwardArgs<E> args{.tokens = ids,
                                  .grad_output = ElementsOf<E>(grad_output),
                                  .add = add,
                                  .vocabulary = grad_weight.size(0),
                                  .columns = grad_weight.size(1),
                                  .grad_weight = nullptr,
                                  .rounded = nullptr,
                                  .work = work};
    if (std::is_same_v<E, Bf16> && grad_weight.scalar_type() == at::kBFloat16) {
      args.rounded = MutableElementsOf<E>(grad_weight);
    } else {
      args.grad_weight = MutableElementsOf<Arithmetic<E>>(grad_weight);
    }
    kernels_.Run(args);
  });
}

}  // namespace tandem::ops
