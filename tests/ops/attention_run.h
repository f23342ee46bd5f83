// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/attention.h"
#include "ops/operations.h"
#include "ops/tensors.h"

namespace tandem::ops::test {

// What an attention writes, by the types of `qkv`, on its device, full of NaN: context [B * S, heads * d],
// lse [B, heads, S], and the gradient of qkv.
std::vector<at::Tensor> AttentionOutputs(const AttentionShape& shape, const at::Tensor& qkv);

// The forward and the backward into such outputs, each with work memory full of NaN. documents: as Operations
// takes it.
void RunAttention(const Operations& ops, const AttentionShape& shape, const at::Tensor& qkv,
                  const at::Tensor& documents, const at::Tensor& grad_context, std::vector<at::Tensor>& out);

}  // namespace tandem::ops::test
