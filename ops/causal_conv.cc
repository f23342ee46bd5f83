// SPDX-License-Identifier: Apache-2.0
#include "ops/causal_conv.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Throws unless x and its convolution fit the weight.
void CheckConv(int64_t sequences, const Array& x, const Array& weight, const Array& bias, const Array& y,
               DeviceKind on) {
  const int64_t channels = x.columns;
  CheckRows("x", x, on);
  Check(sequences > 0 && x.rows % sequences == 0, "x must be of ", sequences, " sequences, not ", x.shape());
  const int64_t width = channels == 0 ? 0 : weight.elements() / channels;
  Check(width >= 1 && width <= kMostConvWidth, "a convolution reads 1 to ", kMostConvWidth, " tokens, not ",
        width);
  CheckElements("weight", weight, channels * width, on);
  if (bias.defined()) {
    CheckElements("bias", bias, channels, on);
  }
  CheckMatrix("y", y, x.rows, channels, on);
}

template <typename E>
CausalConvInputs<E> InputsOf(int64_t sequences, const Array& x, const Array& documents, const Array& weight,
                             const Array& bias) {
  const int64_t length = x.rows / sequences;
  return {.sequences = sequences,
          .length = length,
          .channels = x.columns,
          .width = weight.elements() / x.columns,
          .documents = DocumentsOf(documents, sequences, length, x.on),
          .x = ElementsOf<E>(x),
          .x_stride = x.row_stride,
          .weight = ElementsOf<E>(weight),
          .bias = ElementsOf<E>(bias)};
}

}  // namespace

Call Operations::CausalConv(int64_t sequences, const Array& x, const Array& documents, const Array& weight,
                            const Array& bias, const Array& y) const {
  CheckConv(sequences, x, weight, bias, y, kernels_.kind());
  return WithElementType(x, [&]<typename E>(E) {
    return kernels_.Bind(
        CausalConvArgs<E>{InputsOf<E>(sequences, x, documents, weight, bias), ElementsOf<E>(y)});
  });
}

Call Operations::CausalConvBackward(int64_t sequences, const Array& x, const Array& documents,
                                    const Array& weight, const Array& bias, const Array& grad_y,
                                    const Array& grad_x, const Array& grad_weight, const Array& grad_bias,
                                    Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckConv(sequences, x, weight, bias, grad_y, on);
  CheckRows("grad_x", grad_x, on);
  Check(grad_x.rows == x.rows && grad_x.columns == x.columns, "grad_x must be as x, not ", grad_x.shape());
  CheckElements("grad_weight", grad_weight, weight.elements(), on);
  Check(grad_bias.defined() == bias.defined(), "a bias has a gradient, and without one there is none");
  if (bias.defined()) {
    CheckElements("grad_bias", grad_bias, bias.elements(), on);
  }
  CheckWork("CausalConvBackward", work,
            CausalConvBackwardWorkBytes(on, sequences, x.rows / sequences, x.columns,
                                        weight.elements() / x.columns, BytesOf(x.type)));
  return WithElementType(x, [&]<typename E>(E) {
    CausalConvBackwardArgs<E> args{InputsOf<E>(sequences, x, documents, weight, bias)};
    args.grad_y = ElementsOf<E>(grad_y);
    args.grad_x = ElementsOf<E>(grad_x);
    args.grad_x_stride = grad_x.row_stride;
    args.grad_weight = ElementsOf<Arithmetic<E>>(grad_weight);
    args.grad_bias = ElementsOf<Arithmetic<E>>(grad_bias);
    args.work = work;
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
