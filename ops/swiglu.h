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

}  // namespace tandem::ops
