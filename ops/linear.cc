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
  const bool widens = a.is_cuda() && a.scalar_type() == at::kBFloat16 && output.scalar_type() == at::kFloat;
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && (widens || a.scalar_type() == output.scalar_type()),
              "a matrix product takes operands and output of one type, not ", a.scalar_type(), ", ",
              b.scalar_type(), " and ", output.scalar_type());
}

// output (+)= a b
void Multiply(const at::Tensor& a, const at::Tensor& b, bool add, at::Tensor& output) {
  CheckOutput(a, b, output, a.size(0), b.size(1));
  const bool widens = a.scalar_type() != output.scalar_type();
  if (add && widens) {
    at::addmm_out(output, output, a, b, output.scalar_type());
  } else if (add) {
    at::addmm_out(output, output, a, b);
  } else if (widens) {
    at::mm_out(output, a, b, output.scalar_type());
  } else {
    at::mm_out(output, a, b);
  }
}

}  // namespace

void Linear(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  Multiply(x, weight.t(), /*add=*/false, y);
}

void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, at::Tensor& grad_x) {
  Multiply(grad_y, weight, /*add=*/false, grad_x);
}

void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight) {
  Multiply(grad_y.t(), x, add, grad_weight);
}

}  // namespace tandem::ops
