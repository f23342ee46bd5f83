// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// activated = silu(gate) * up; silu(x) = x / (1 + exp(-x)). gate_up: [T, 2 I], gate in the first I columns;
// activated: [T, I].
void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated);

// Overwrites grad_gate_up, and recomputes `activated` on the way (the next product's weight gradient needs
// it), which may be grad_activated itself.
void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                    at::Tensor& activated);

// The same, row t of `activated` multiplied by weights[t]: the probability with which an expert counts, in
// the activation that the second product reads. weights, grad_weights: [T], of float where gate_up is of
// bfloat16. Of the first rows alone, as many as the last of `begins` says (grouped_linear.h); the others are
// left alone. On the CPU.
void WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                    at::Tensor& activated);
void WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                            const at::Tensor& grad_activated, at::Tensor& grad_gate_up, at::Tensor& activated,
                            at::Tensor& grad_weights);

}  // namespace tandem::ops
