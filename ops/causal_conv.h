// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/attention_shape.h"
#include "ops/workspace.h"

namespace tandem::ops {

inline constexpr int64_t kMostConvWidth = 8;  // limit of CausalConvInputs::width

// y = silu(bias + the causal convolution of x, channel by channel): for token t of a sequence
//   y[t, c] = silu(bias[c] + sum_j weight[c, j] x[t - width + 1 + j, c]),
// where a token before the document of t counts as zeros. x: [B * S, channels], rows x_stride apart; weight:
// [channels, width], width at most kMostConvWidth; bias: [channels], or null for zeros; y: [B * S, channels].
template <typename E>
struct CausalConvInputs {
  int64_t sequences;
  int64_t length;
  int64_t channels;
  int64_t width;
  DocumentStarts documents;  // null: each sequence is one document
  const E* x;
  int64_t x_stride;
  const E* weight;
  const E* bias;
};
template <typename E>
struct CausalConvArgs : CausalConvInputs<E> {
  static constexpr const char* kName = "CausalConv";
  E* y;
};

// Overwrites grad_x (rows grad_x_stride apart), grad_weight and grad_bias. The latter two are sums over the
// tokens, added in a fixed order.
template <typename E>
struct CausalConvBackwardArgs : CausalConvInputs<E> {
  static constexpr const char* kName = "CausalConvBackward";
  const E* grad_y;
  E* grad_x;
  int64_t grad_x_stride;
  device::Arithmetic<E>* grad_weight;
  device::Arithmetic<E>* grad_bias;  // null if there is no bias
  Workspace work;                    // of CausalConvBackwardWorkBytes (mixer_work.h)
};

}  // namespace tandem::ops
