#include "ops/linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace tandem::ops {
namespace {

// The out-variants resize an output of another shape, which would silently leave the given memory.
void CheckOutput(const at::Tensor& a, const at::Tensor& b, const at::Tensor& output, int64_t rows,
                 int64_t columns) {
  TORCH_CHECK(output.dim() == 2 && output.size(0) == rows && output.size(1) == columns, "the product is [",
              rows, ", ", columns, "], its output ", output.sizes());
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && a.scalar_type() == output.scalar_type(),
              "a matrix product takes operands and output of one type, not ", a.scalar_type(), ", ",
              b.scalar_type(), " and ", output.scalar_type());
}

}  // namespace

void Linear(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  CheckOutput(x, weight, y, x.size(0), weight.size(0));
  at::mm_out(y, x, weight.t());
}

void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, at::Tensor& grad_x) {
  CheckOutput(grad_y, weight, grad_x, grad_y.size(0), weight.size(1));
  at::mm_out(grad_x, grad_y, weight);
}

void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight) {
  CheckOutput(grad_y, x, grad_weight, grad_y.size(1), x.size(1));
  if (add) {
    at::addmm_out(grad_weight, grad_weight, grad_y.t(), x);
  } else {
    at::mm_out(grad_weight, grad_y.t(), x);
  }
}

}  // namespace tandem::ops
