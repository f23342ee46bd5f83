// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/attention.h"
#include "ops/operations.h"
#include "ops/tensors.h"

namespace tandem::ops::test {

// Returns the outputs of an attention, full of NaN, on the device of `qkv` and with its types: context [B *
// S, heads * d], lse [B, heads, S], and the gradient of qkv.
std::vector<at::Tensor> AttentionOutputs(const AttentionShape& shape, const at::Tensor& qkv);

// Runs the forward and the backward into such outputs, each with work memory full of NaN. documents: as for
// Operations::Attention.
void RunAttention(const Operations& ops, const AttentionShape& shape, const at::Tensor& qkv,
                  const at::Tensor& documents, const at::Tensor& grad_context, std::vector<at::Tensor>& out);

}  // namespace tandem::ops::test
