// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/router_config.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

// Which experts see a token, and how much each counts. T tokens, E experts, of which each token has k.
// Everything here is computed in the type of the logits, float or double, on the CPU.

// Throws c10::Error, naming what does not fit: top_k and groups outside their ranges or that do not divide.
void CheckRouter(const RouterConfig& config);

// logits: [T, E]. chosen: int64 [T, k], ascending in each row; probabilities: [T, k], of the chosen.
// The k largest scores are chosen, of equal ones those with the smallest index. bias: [E], added to the
// scores for the choice alone, never in the probabilities; undefined: none; with sigmoid scores only. Softmax
// scores are compared as logits. A row with NaN or infinity chooses the first k, with probabilities of NaN.
void Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias, at::Tensor& chosen,
           at::Tensor& probabilities);

// tokens: double [E], how many rows of chosen have each expert; -1 is a choice that was dropped. dropped:
// double [1], how many were. Throws c10::IndexError for one outside.
void CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped);

// bias += rate * sign(mean of tokens - tokens), expert by expert: who had fewer tokens than the mean is
// chosen more. tokens: double [P, E] with adjacent columns, what each of P ranks has counted; bias: [E], of
// float or double. applies: bool [1]; false: the bias stays as it is.
void UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate, at::Tensor& bias);

// Overwrites grad_logits: [T, E]. The choice has no gradient, and neither has a probability whose choice was
// dropped (capacity.h). ranked: as Route chose; chosen: the same with -1 for what was dropped, or `ranked`
// itself.
void RouteBackward(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& ranked,
                   const at::Tensor& chosen, const at::Tensor& grad_probabilities, at::Tensor& grad_logits);

}  // namespace tandem::ops
