// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/bf16.h"
#include "ops/attention_shape.h"
#include "ops/workspace.h"

namespace tandem::ops {

// Causal attention with scale 1 / sqrt(d), within documents where the shape has them. q, k and v are the
// columns, in this order, of qkv: [B * S, (heads + 2 * kv_heads) * d]; context: [B * S, heads * d]; lse: [B,
// heads, S], the logarithms of the sums of exponentials.
//
// What it reads, also in the backward, must be finite: a row that another does not attend to, later in the
// sequence or in another document of it, may take part in that one's sums with weight 0, so that a NaN or an
// infinity reaches any row of its sequence. It reaches no other sequence.
template <typename E>
struct AttentionArgs {
  static constexpr const char* kName = "Attention";
  AttentionShape shape;
  const E* qkv;
  DocumentStarts documents;
  E* context;
  device::Arithmetic<E>* lse;
  Workspace work;  // AttentionWorkBytes (attention_work.h)
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
  Workspace work;  // AttentionBackwardWorkBytes
};

}  // namespace tandem::ops
