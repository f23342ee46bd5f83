#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// y = x W^T. x: [T, I], W: [O, I], y: [T, O]; any 2-D views, of one type.
void Linear(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y);

// grad_x = grad_y W.
void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, at::Tensor& grad_x);

// grad_weight (+)= grad_y^T x.
void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight);

}  // namespace tandem::ops
