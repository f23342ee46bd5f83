// SPDX-License-Identifier: Apache-2.0
#include "ops/expert_products.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"

namespace tandem::ops {
namespace {

template <typename E>
Array Matrix(const DeviceKernels& kernels, const E* elements, int64_t rows, int64_t columns) {
  return {elements, kElementKind<E>, kernels.kind(), rows, columns};
}

// Calls visit(expert, first row, rows).
template <typename Args, typename Visit>
void ForEachExpert(const Args& args, const Visit& visit) {
  CheckBegins(args.begins, args.experts, args.rows);
  for (int64_t expert = 0; expert < args.experts; ++expert) {
    visit(expert, args.begins[expert], args.begins[expert + 1] - args.begins[expert]);
  }
}

// Multiplies each expert's rows of `from` with its weight, transposed or not, into its rows of `to`.
template <typename Args, typename E>
Calls BindRows(const DeviceKernels& kernels, const Args& args, const E* from, int64_t from_columns, E* to,
               int64_t to_columns, bool transposed) {
  Calls each;
  ForEachExpert(args, [&](int64_t expert, int64_t row, int64_t rows) {
    if (rows == 0) {
      return;
    }
    const Array weight =
        Matrix(kernels, args.weight + expert * args.outputs * args.inputs, args.outputs, args.inputs);
    each.Add(kernels.Bind(ProductArgs{Matrix(kernels, from + row * from_columns, rows, from_columns),
                                      transposed ? weight.Transposed() : weight,
                                      /*addend=*/{}, Matrix(kernels, to + row * to_columns, rows, to_columns),
                                      args.work}));
  });
  return each;
}

}  // namespace

void CheckBegins(const int64_t* begins, int64_t experts, int64_t rows) {
  for (int64_t expert = 0; expert < experts; ++expert) {
    Check(begins[expert] <= begins[expert + 1], "expert ", expert, " has rows from ", begins[expert], " to ",
          begins[expert + 1]);
  }
  Check(begins[0] == 0 && begins[experts] <= rows, "the experts have rows ", begins[0], " to ",
        begins[experts], ", of ", rows);
}

#define TANDEM_INSTANTIATE(Args)                                                   \
  template Calls BindEach(const DeviceKernels& kernels, const Args<float>& args);  \
  template Calls BindEach(const DeviceKernels& kernels, const Args<double>& args); \
  template Calls BindEach(const DeviceKernels& kernels, const Args<Bf16>& args);

template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearArgs<E>& args) {
  return BindRows(kernels, args, args.x, args.inputs, args.y, args.outputs, /*transposed=*/true);
}
TANDEM_INSTANTIATE(GroupedLinearArgs)

template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardInputArgs<E>& args) {
  return BindRows(kernels, args, args.grad_y, args.outputs, args.grad_x, args.inputs, /*transposed=*/false);
}
TANDEM_INSTANTIATE(GroupedLinearBackwardInputArgs)

template <typename E>
Calls BindEach(const DeviceKernels& kernels, const GroupedLinearBackwardWeightArgs<E>& args) {
  Calls each;
  ForEachExpert(args, [&](int64_t expert, int64_t row, int64_t rows) {
    const int64_t weight = expert * args.outputs * args.inputs;
    const Array sums = args.rounded != nullptr
                           ? Matrix(kernels, args.rounded + weight, args.outputs, args.inputs)
                           : Matrix(kernels, args.grad_weight + weight, args.outputs, args.inputs);
    if (rows > 0) {
      each.Add(kernels.Bind(
          ProductArgs{Matrix(kernels, args.grad_y + row * args.outputs, rows, args.outputs).Transposed(),
                      Matrix(kernels, args.x + row * args.inputs, rows, args.inputs),
                      args.add ? sums : Array(), sums, args.work}));
    } else if (!args.add) {
      each.Add(kernels.Bind(FillArgs{.byte = 0, .bytes = sums.bytes(), .to = sums.begin}));
    }
  });
  return each;
}
TANDEM_INSTANTIATE(GroupedLinearBackwardWeightArgs)

}  // namespace tandem::ops
