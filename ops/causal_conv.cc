// SPDX-License-Identifier: Apache-2.0
#include "ops/causal_conv.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

template <typename E>
CausalConvInputs<E> InputsOf(int64_t sequences, const Array& x, const Array& documents, const Array& weight,
                             const Array& bias, DeviceKind on) {
  Check(sequences > 0 && x.rows % sequences == 0, "x must be of ", sequences, " sequences, not ", x.shape());
  const int64_t length = x.rows / sequences;
  const int64_t channels = x.columns;
  const int64_t width = channels == 0 ? 0 : weight.elements() / channels;
  Check(width >= 1 && width <= kMostConvWidth, "a convolution reads 1 to ", kMostConvWidth, " tokens, not ",
        width);
  return {.sequences = sequences,
          .length = length,
          .channels = channels,
          .width = width,
          .documents = DocumentsOf(documents, sequences, length, on),
          .x = RowsOf<E>("x", x, x.rows, channels, on),
          .x_stride = x.row_stride,
          .weight = ElementsOf<E>("weight", weight, channels * width, on),
          .bias = ElementsIfGiven<E>("bias", bias, channels, on)};
}

}  // namespace

Call Operations::CausalConv(int64_t sequences, const Array& x, const Array& documents, const Array& weight,
                            const Array& bias, const Array& y) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(CausalConvArgs<E>{InputsOf<E>(sequences, x, documents, weight, bias, on),
                                           MatrixOf<E>("y", y, x.rows, x.columns, on)});
  });
}

Call Operations::CausalConvBackward(int64_t sequences, const Array& x, const Array& documents,
                                    const Array& weight, const Array& bias, const Array& grad_y,
                                    const Array& grad_x, const Array& grad_weight, const Array& grad_bias,
                                    Workspace work) const {
  const DeviceKind on = kernels_.kind();
  Check(grad_bias.defined() == bias.defined(), "bias and grad_bias must be given together");
  return WithElementType(x, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    CausalConvBackwardArgs<E> args{InputsOf<E>(sequences, x, documents, weight, bias, on)};
    args.grad_y = MatrixOf<E>("grad_y", grad_y, x.rows, x.columns, on);
    args.grad_x = RowsOf<E>("grad_x", grad_x, x.rows, x.columns, on);
    args.grad_x_stride = grad_x.row_stride;
    args.grad_weight = ElementsOf<T>("grad_weight", grad_weight, weight.elements(), on);
    args.grad_bias = ElementsIfGiven<T>("grad_bias", grad_bias, x.columns, on);
    args.work =
        Checked(args.kName, work,
                CausalConvBackwardWorkBytes(on, sequences, args.length, x.columns, args.width, sizeof(E)));
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
