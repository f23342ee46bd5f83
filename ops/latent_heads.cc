// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_heads.h"

#include <algorithm>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Throws unless `qkv`, or its gradient, are heads that ops/attention.h reads.
void CheckPacked(const LatentHeads& h, const Array& qkv, DeviceKind on) {
  Check(h.heads > 0 && h.content >= 0 && h.rotary > 0 && h.rotary % 2 == 0 && h.content % 2 == 0 &&
            h.rotary <= kMostRotary,
        "a head's ", h.rotary, " rotated and ", h.content, " other dims must be even, and at most ",
        kMostRotary, " rotated");
  Check(h.value > 0 && h.value <= h.head_dim(), "values of ", h.value, " dims do not fit in heads of ",
        h.head_dim());
  CheckMatrix("qkv", qkv, qkv.rows, 3 * h.heads * h.head_dim(), on);
}

// Throws unless what is packed, or its gradients, fit.
void CheckParts(const LatentHeads& h, int64_t tokens, const Array& query, const Array& key_value,
                const Array& down, DeviceKind on) {
  CheckMatrix("query", query, tokens, h.heads * h.head_dim(), on);
  CheckMatrix("key_value", key_value, tokens, h.heads * (h.content + h.value), on);
  CheckMatrix("down", down, tokens, std::max(h.rotary, down.columns), on);
}

}  // namespace

Call Operations::PackLatentHeads(const LatentHeads& heads, const Array& query, const Array& key_value,
                                 const Array& down, const Array& qkv) const {
  CheckPacked(heads, qkv, kernels_.kind());
  CheckParts(heads, qkv.rows, query, key_value, down, kernels_.kind());
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(PackLatentHeadsArgs<E>{.heads = heads,
                                                .tokens = qkv.rows,
                                                .down_columns = down.columns,
                                                .query = ElementsOf<E>(query),
                                                .key_value = ElementsOf<E>(key_value),
                                                .down = ElementsOf<E>(down),
                                                .qkv = ElementsOf<E>(qkv)});
  });
}

Call Operations::UnpackLatentHeads(const LatentHeads& heads, const Array& grad_qkv, const Array& grad_query,
                                   const Array& grad_key_value, const Array& grad_down) const {
  CheckPacked(heads, grad_qkv, kernels_.kind());
  CheckParts(heads, grad_qkv.rows, grad_query, grad_key_value, grad_down, kernels_.kind());
  return WithElementType(grad_qkv, [&]<typename E>(E) {
    return kernels_.Bind(UnpackLatentHeadsArgs<E>{.heads = heads,
                                                  .tokens = grad_qkv.rows,
                                                  .down_columns = grad_down.columns,
                                                  .grad_qkv = ElementsOf<E>(grad_qkv),
                                                  .grad_query = ElementsOf<E>(grad_query),
                                                  .grad_key_value = ElementsOf<E>(grad_key_value),
                                                  .grad_down = ElementsOf<E>(grad_down)});
  });
}

}  // namespace tandem::ops
