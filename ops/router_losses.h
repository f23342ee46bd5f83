// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/router_config.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

// Losses of a router beside the model's: they have a gradient of their own and are not part of its loss.
//
// balance: the mean over sequences of E / (k S^2) * sum_e n_e * sum_t s_te: 1 where the load is even (Switch
// Transformers, arXiv:2101.03961, section 2.2, for k experts). S: tokens of a sequence; s: softmax over all
// experts, or sigmoids divided by their sum; n_e: how many tokens of the sequence have e among the k largest
// s, without bias and groups. n_e has no gradient.
// z: the mean over tokens of logsumexp(logits)^2 (ST-MoE, arXiv:2202.08906, section 3.2).

// values: two doubles, balance and z, without their coefficients. Summed in token order, in double.
void RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const at::Tensor& logits,
                  at::Tensor& values);

// Adds the gradient of both, times their coefficients, to grad_logits: [T, E].
void RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                          const at::Tensor& logits, at::Tensor& grad_logits);

}  // namespace tandem::ops
