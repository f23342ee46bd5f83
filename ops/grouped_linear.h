// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operations.h"

namespace tandem::ops {

// A matrix product for each expert over its own rows, by the matrix products of `ops`. begins: int64 [E + 1]
// on the host, where each expert's rows begin, the first's at 0, and how many there are together; rows behind
// these are not read, and left alone. The experts' weights lie one after another. Sizes that do not fit throw
// c10::Error.

// y = x W_e^T for the rows of expert e. x: [R, I]; weight: [E O, I]; y: [R, O].
void GroupedLinear(const Operations& ops, const at::Tensor& begins, const at::Tensor& x,
                   const at::Tensor& weight, at::Tensor& y, Workspace work);

// grad_x = grad_y W_e.
void GroupedLinearBackwardInput(const Operations& ops, const at::Tensor& begins, const at::Tensor& grad_y,
                                const at::Tensor& weight, at::Tensor& grad_x, Workspace work);

// grad_weight of expert e (+)= grad_y^T x over its rows; zero where it has none and nothing is added to.
void GroupedLinearBackwardWeight(const Operations& ops, const at::Tensor& begins, const at::Tensor& grad_y,
                                 const at::Tensor& x, bool add, at::Tensor& grad_weight, Workspace work);

}  // namespace tandem::ops
