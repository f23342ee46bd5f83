// SPDX-License-Identifier: Apache-2.0
#include "ops/expert_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <type_traits>

#include "ops/device_kernels.h"

namespace tandem::ops {
namespace {

using device::Bf16;

template <typename E>
at::Tensor Matrix(const DeviceKernels& kernels, const E* elements, int64_t rows, int64_t columns) {
  constexpr at::ScalarType kType = std::is_same_v<E, Bf16>     ? at::kBFloat16
                                   : std::is_same_v<E, double> ? at::kDouble
                                                               : at::kFloat;
  return at::from_blob(const_cast<E*>(elements), {rows, columns},
                       at::TensorOptions().dtype(kType).device(kernels.device()));
}

// Calls visit(expert, first row, rows).
template <typename Args, typename Visit>
void ForEachExpert(const Args& args, const Visit& visit) {
  CheckBegins(args.begins, args.experts, args.rows);
  for (int64_t expert = 0; expert < args.experts; ++expert) {
    visit(expert, args.begins[expert], args.begins[expert + 1] - args.begins[expert]);
  }
}

}  // namespace

void CheckBegins(const int64_t* begins, int64_t experts, int64_t rows) {
  for (int64_t expert = 0; expert < experts; ++expert) {
    TORCH_CHECK(begins[expert] <= begins[expert + 1], "expert ", expert, " has rows from ", begins[expert],
                " to ", begins[expert + 1]);
  }
  TORCH_CHECK(begins[0] == 0 && begins[experts] <= rows, "the experts have rows ", begins[0], " to ",
              begins[experts], ", of ", rows);
}

#define TANDEM_INSTANTIATE(Args)                                                      \
  template void MultiplyEach(const DeviceKernels& kernels, const Args<float>& args);  \
  template void MultiplyEach(const DeviceKernels& kernels, const Args<double>& args); \
  template void MultiplyEach(const DeviceKernels& kernels, const Args<Bf16>& args);

template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args) {
  ForEachExpert(args, [&](int64_t expert, int64_t row, int64_t rows) {
    if (rows == 0) {
      return;
    }
    const at::Tensor weight =
        Matrix(kernels, args.weight + expert * args.outputs * args.inputs, args.outputs, args.inputs);
    at::Tensor y = Matrix(kernels, args.y + row * args.outputs, rows, args.outputs);
    kernels.Multiply({Matrix(kernels, args.x + row * args.inputs, rows, args.inputs), weight.t(),
                      /*addend=*/{}, y, args.work});
  });
}
TANDEM_INSTANTIATE(GroupedLinearArgs)

template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args) {
  ForEachExpert(args, [&](int64_t expert, int64_t row, int64_t rows) {
    if (rows == 0) {
      return;
    }
    const at::Tensor weight =
        Matrix(kernels, args.weight + expert * args.outputs * args.inputs, args.outputs, args.inputs);
    at::Tensor grad_x = Matrix(kernels, args.grad_x + row * args.inputs, rows, args.inputs);
    kernels.Multiply({Matrix(kernels, args.grad_y + row * args.outputs, rows, args.outputs), weight,
                      /*addend=*/{}, grad_x, args.work});
  });
}
TANDEM_INSTANTIATE(GroupedLinearBackwardInputArgs)

template <typename E>
void MultiplyEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args) {
  ForEachExpert(args, [&](int64_t expert, int64_t row, int64_t rows) {
    const int64_t weight = expert * args.outputs * args.inputs;
    at::Tensor sums = args.rounded != nullptr
                          ? Matrix(kernels, args.rounded + weight, args.outputs, args.inputs)
                          : Matrix(kernels, args.grad_weight + weight, args.outputs, args.inputs);
    if (rows > 0) {
      kernels.Multiply({Matrix(kernels, args.grad_y + row * args.outputs, rows, args.outputs).t(),
                        Matrix(kernels, args.x + row * args.inputs, rows, args.inputs),
                        args.add ? sums : at::Tensor(), sums, args.work});
    } else if (!args.add) {
      sums.zero_();
    }
  });
}
TANDEM_INSTANTIATE(GroupedLinearBackwardWeightArgs)

}  // namespace tandem::ops
