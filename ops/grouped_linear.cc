// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// Returns the shapes of the products of `rows` rows of type E with the experts' weights, which are
// consecutive in a matrix of the shape of `weight`.
template <typename E>
ExpertRows ExpertsOf(const char* operation, const Array& begins, int64_t rows, const Array& weight,
                     Workspace work, DeviceKind on) {
  const int64_t experts = begins.elements() - 1;
  const bool on_host = begins.on == DeviceKind::kCpu;
  Check(experts > 0 && weight.rows % experts == 0, "the weights of ", experts,
        " experts must be consecutive and of one shape, not ", weight.shape());
  return {.begins = ElementsOf<int64_t>("begins", begins, experts + 1, on_host ? DeviceKind::kCpu : on),
          .on_host = on_host,
          .experts = experts,
          .rows = rows,
          .inputs = weight.columns,
          .outputs = weight.rows / experts,
          .work = Checked(operation, work, GroupedWorkBytes(on, sizeof(E), on_host))};
}

}  // namespace

Call Operations::GroupedLinear(const Array& begins, const Array& x, const Array& weight, const Array& y,
                               Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(x, [&]<typename E>(E) {
    GroupedLinearArgs<E> args{ExpertsOf<E>("GroupedLinear", begins, x.rows, weight, work, on)};
    args.x = MatrixOf<E>("x", x, x.rows, args.inputs, on);
    args.weight = MatrixOf<E>("weight", weight, weight.rows, weight.columns, on);
    args.y = MatrixOf<E>("y", y, x.rows, args.outputs, on);
    return kernels_.Bind(args);
  });
}

Call Operations::GroupedLinearBackwardInput(const Array& begins, const Array& grad_y, const Array& weight,
                                            const Array& grad_x, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(grad_y, [&]<typename E>(E) {
    GroupedLinearBackwardInputArgs<E> args{
        ExpertsOf<E>("GroupedLinearBackwardInput", begins, grad_y.rows, weight, work, on)};
    args.grad_y = MatrixOf<E>("grad_y", grad_y, grad_y.rows, args.outputs, on);
    args.weight = MatrixOf<E>("weight", weight, weight.rows, weight.columns, on);
    args.grad_x = MatrixOf<E>("grad_x", grad_x, grad_y.rows, args.inputs, on);
    return kernels_.Bind(args);
  });
}

Call Operations::GroupedLinearBackwardWeight(const Array& begins, const Array& grad_y, const Array& x,
                                             bool add, const Array& grad_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(x, [&]<typename E>(E) {
    GroupedLinearBackwardWeightArgs<E> args{
        ExpertsOf<E>("GroupedLinearBackwardWeight", begins, x.rows, grad_weight, work, on)};
    args.grad_y = MatrixOf<E>("grad_y", grad_y, x.rows, args.outputs, on);
    args.x = MatrixOf<E>("x", x, x.rows, args.inputs, on);
    args.add = add;
    SetGradient(grad_weight, on, args);
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
