// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {

Call Operations::Embedding(const Array& tokens, const Array& weight, const Array& output,
                           double factor) const {
  const DeviceKind on = kernels_.kind();
  const int64_t columns = weight.columns;
  return WithElementType(weight, [&]<typename E>(E) {
    return kernels_.Bind(
        EmbeddingArgs<E>{.tokens = TokensOf(tokens, on),
                         .weight = MatrixOf<E>("weight", weight, weight.rows, columns, on),
                         .vocabulary = weight.rows,
                         .columns = columns,
                         .factor = static_cast<Arithmetic<E>>(factor),
                         .output = MatrixOf<E>("output", output, tokens.elements(), columns, on)});
  });
}

Call Operations::EmbeddingBackward(const Array& tokens, const Array& grad_output, bool add,
                                   const Array& grad_weight, Workspace work, double factor) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = tokens.elements();
  return WithElementType(grad_output, [&]<typename E>(E) {
    EmbeddingBackwardArgs<E> args{
        .tokens = TokensOf(tokens, on),
        .grad_output = MatrixOf<E>("grad_output", grad_output, rows, grad_weight.columns, on),
        .add = add,
        .vocabulary = grad_weight.rows,
        .columns = grad_weight.columns,
        .factor = static_cast<Arithmetic<E>>(factor),
        .work = Checked("EmbeddingBackward", work, EmbeddingBackwardWorkBytes(on, rows))};
    SetGradient(grad_weight, on, args);
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
