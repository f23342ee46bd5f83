// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/bf16.h"
#include "ops/attention_shape.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Causal attention with the shape's scale, within documents if the shape has them. q, k and v are the
// columns, in this order, of qkv: [B * S, (heads + 2 * kv_heads) * d]; context: [B * S, heads * d]; lse: [B,
// heads, S], the logarithms of the sums of exponentials.
//
// All input, also that of the backward, must be finite. A row takes part, with weight 0, in the sums of rows
// that do not attend to it, such as earlier rows and rows of other documents; so a NaN or an infinity can
// reach any row of its sequence. It does not reach other sequences.
template <typename E>
struct AttentionArgs {
  static constexpr const char* kName = "Attention";
  AttentionShape shape;
  const E* qkv;
  DocumentStarts documents;
  E* context;
  device::Arithmetic<E>* lse;
  Workspace work;  // of AttentionWorkBytes (attention_work.h)
};

// Overwrites grad_qkv.
template <typename E>
struct AttentionBackwardArgs {
  static constexpr const char* kName = "AttentionBackward";
  AttentionShape shape;
  const E* qkv;
  DocumentStarts documents;
  const E* context;
  const device::Arithmetic<E>* lse;
  const E* grad_context;
  E* grad_qkv;
  Workspace work;  // of AttentionBackwardWorkBytes
};

}  // namespace tandem::ops
