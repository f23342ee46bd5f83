#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// y = x / sqrt(mean(x^2) + epsilon) * weight, row by row. x, y: [T, H]; weight: [H].
void RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& y);

// grad_x (+)= residual + the norm's gradient; grad_weight (+)= summed in row order.
// residual: [T, H], the gradient that reaches x beside the norm; undefined: none. The reciprocal norms are
// recomputed. The statistics, and grad_weight, are of float where the rest is of bfloat16.
void RmsNormBackward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight, double epsilon,
                     const at::Tensor& residual, bool add_x, at::Tensor& grad_x, bool add_weight,
                     at::Tensor& grad_weight);

}  // namespace tandem::ops
