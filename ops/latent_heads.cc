// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_heads.h"

#include <algorithm>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Throws unless heads can be laid out in the form that ops/attention.h reads.
void CheckHeads(const LatentHeads& h) {
  Check(h.heads > 0 && h.content >= 0 && h.rotary > 0 && h.rotary % 2 == 0 && h.content % 2 == 0 &&
            h.rotary <= kMostRotary,
        "a head's ", h.rotary, " rotated and ", h.content, " other dims must be even, and at most ",
        kMostRotary, " rotated");
  Check(h.value > 0 && h.value <= h.head_dim(), "values of ", h.value, " dims do not fit in heads of ",
        h.head_dim());
}

}  // namespace

Call Operations::PackLatentHeads(const LatentHeads& h, const Array& query, const Array& key_value,
                                 const Array& down, const Array& qkv) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = qkv.rows;
  CheckHeads(h);
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(PackLatentHeadsArgs<E>{
        .heads = h,
        .tokens = tokens,
        .down_columns = down.columns,
        .query = MatrixOf<E>("query", query, tokens, h.heads * h.head_dim(), on),
        .key_value = MatrixOf<E>("key_value", key_value, tokens, h.heads * (h.content + h.value), on),
        .down = MatrixOf<E>("down", down, tokens, std::max(h.rotary, down.columns), on),
        .qkv = MatrixOf<E>("qkv", qkv, tokens, 3 * h.heads * h.head_dim(), on)});
  });
}

Call Operations::UnpackLatentHeads(const LatentHeads& h, const Array& grad_qkv, const Array& grad_query,
                                   const Array& grad_key_value, const Array& grad_down) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = grad_qkv.rows;
  CheckHeads(h);
  return WithElementType(grad_qkv, [&]<typename E>(E) {
    return kernels_.Bind(UnpackLatentHeadsArgs<E>{
        .heads = h,
        .tokens = tokens,
        .down_columns = grad_down.columns,
        .grad_qkv = MatrixOf<E>("grad_qkv", grad_qkv, tokens, 3 * h.heads * h.head_dim(), on),
        .grad_query = MatrixOf<E>("grad_query", grad_query, tokens, h.heads * h.head_dim(), on),
        .grad_key_value =
            MatrixOf<E>("grad_key_value", grad_key_value, tokens, h.heads * (h.content + h.value), on),
        .grad_down = MatrixOf<E>("grad_down", grad_down, tokens, std::max(h.rotary, grad_down.columns), on)});
  });
}

}  // namespace tandem::ops
