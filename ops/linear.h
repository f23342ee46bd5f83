#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// Matrix products by LibTorch, on the device where the operands are. Operands are 2-D views of one type:
// float, double, or on a GPU bfloat16, whose output may be of float. Outputs are written where they lie, and
// anything else is refused with c10::Error.

// y = x W^T. x: [T, I], W: [O, I], y: [T, O].
void Linear(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y);

// grad_x = grad_y W.
void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, at::Tensor& grad_x);

// grad_weight (+)= grad_y^T x.
void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight);

}  // namespace tandem::ops
