// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {
namespace {

// Returns the dims of a head.
int64_t CheckHeads(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                   const Array& key_weight, DeviceKind on) {
  const int64_t head_dim = query_weight.elements();
  Check(heads > 0 && kv_heads > 0, "there are ", heads, " query heads and ", kv_heads, " key-value heads");
  CheckElements("query_weight", query_weight, head_dim, on);
  CheckElements("key_weight", key_weight, head_dim, on);
  CheckMatrix("qkv", qkv, qkv.rows, (heads + 2 * kv_heads) * head_dim, on);
  Check(on == DeviceKind::kCpu || head_dim <= kMostGpuNormedHeadDim,
        "heads that are normalised have at most ", kMostGpuNormedHeadDim, " dims on a GPU, not ", head_dim);
  return head_dim;
}

}  // namespace

Call Operations::HeadNorm(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                          const Array& key_weight, double epsilon, const Array& normed) const {
  const DeviceKind on = kernels_.kind();
  const int64_t head_dim = CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, on);
  CheckMatrix("normed", normed, qkv.rows, qkv.columns, on);
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(HeadNormArgs<E>{.qkv = ElementsOf<E>(qkv),
                                         .tokens = qkv.rows,
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .head_dim = head_dim,
                                         .query_weight = ElementsOf<E>(query_weight),
                                         .key_weight = ElementsOf<E>(key_weight),
                                         .epsilon = epsilon,
                                         .normed = ElementsOf<E>(normed)});
  });
}

Call Operations::HeadNormBackward(const Array& qkv, int64_t heads, int64_t kv_heads,
                                  const Array& query_weight, const Array& key_weight, double epsilon,
                                  bool add_weights, const Array& grad, const Array& grad_query_weight,
                                  const Array& grad_key_weight, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t head_dim = CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, on);
  CheckMatrix("grad", grad, qkv.rows, qkv.columns, on);
  CheckElements("grad_query_weight", grad_query_weight, head_dim, on);
  CheckElements("grad_key_weight", grad_key_weight, head_dim, on);
  CheckWork("HeadNormBackward", work, HeadNormBackwardWorkBytes(on, qkv.rows, head_dim, BytesOf(qkv.type)));
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(
        HeadNormBackwardArgs<E>{.qkv = ElementsOf<E>(qkv),
                                .tokens = qkv.rows,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .head_dim = head_dim,
                                .query_weight = ElementsOf<E>(query_weight),
                                .key_weight = ElementsOf<E>(key_weight),
                                .epsilon = epsilon,
                                .add_weights = add_weights,
                                .grad = ElementsOf<E>(grad),
                                .grad_query_weight = ElementsOf<Arithmetic<E>>(grad_query_weight),
                                .grad_key_weight = ElementsOf<Arithmetic<E>>(grad_key_weight),
                                .work = work});
  });
}

}  // namespace tandem::ops
