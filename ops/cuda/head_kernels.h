// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/latent_heads.h"

namespace tandem::ops::cuda {

// The kernels behind head_norm.h and latent_heads.h; as kernels.h says of its own.

inline constexpr int64_t kMostNormedHeadDim = 256;

template <typename E>
int HeadNorm(const E* qkv, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
             const E* query_weight, const E* key_weight, double epsilon, E* normed, Stream stream);

// partial_sums: HeadNormBackwardWorkBytes (row_work.h).
template <typename E>
int HeadNormBackward(const E* qkv, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                     const E* query_weight, const E* key_weight, double epsilon, bool add_weights, E* grad,
                     Arithmetic<E>* grad_query_weight, Arithmetic<E>* grad_key_weight,
                     Arithmetic<E>* partial_sums, Stream stream);

// down_columns: of `down` and grad_down.
template <typename E>
int PackLatentHeads(const LatentHeads& heads, int64_t tokens, int64_t down_columns, const E* query,
                    const E* key_value, const E* down, E* qkv, Stream stream);
template <typename E>
int UnpackLatentHeads(const LatentHeads& heads, int64_t tokens, int64_t down_columns, const E* grad_qkv,
                      E* grad_query, E* grad_key_value, E* grad_down, Stream stream);

}  // namespace tandem::ops::cuda
