// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <type_traits>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {

Call Operations::Embedding(const Array& tokens, const Array& weight, const Array& output,
                           double factor) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(tokens, on);
  CheckMatrix("weight", weight, weight.rows, weight.columns, on);
  CheckMatrix("output", output, tokens.elements(), weight.columns, on);
  return WithElementType(weight, [&]<typename E>(E) {
    return kernels_.Bind(EmbeddingArgs<E>{.tokens = ids,
                                          .weight = ElementsOf<E>(weight),
                                          .vocabulary = weight.rows,
                                          .columns = weight.columns,
                                          .factor = static_cast<Arithmetic<E>>(factor),
                                          .output = ElementsOf<E>(output)});
  });
}

Call Operations::EmbeddingBackward(const Array& tokens, const Array& grad_output, bool add,
                                   const Array& grad_weight, Workspace work, double factor) const {
  const DeviceKind on = kernels_.kind();
  const Tokens ids = TokensOf(tokens, on);
  CheckMatrix("grad_weight", grad_weight, grad_weight.rows, grad_weight.columns, on);
  CheckMatrix("grad_output", grad_output, tokens.elements(), grad_weight.columns, on);
  CheckWork("EmbeddingBackward", work, EmbeddingBackwardWorkBytes(on, tokens.elements()));
  return WithElementType(grad_output, [&]<typename E>(E) {
    EmbeddingBackwardArgs<E> args{.tokens = ids,
                                  .grad_output = ElementsOf<E>(grad_output),
                                  .add = add,
                                  .vocabulary = grad_weight.rows,
                                  .columns = grad_weight.columns,
                                  .factor = static_cast<Arithmetic<E>>(factor),
                                  .grad_weight = nullptr,
                                  .rounded = nullptr,
                                  .work = work};
    if (std::is_same_v<E, Bf16> && grad_weight.type == ElementKind::kBf16) {
      args.rounded = ElementsOf<E>(grad_weight);
    } else {
      args.grad_weight = ElementsOf<Arithmetic<E>>(grad_weight);
    }
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
