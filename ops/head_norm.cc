// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {
namespace {

// The forward, whose arrays fit each other.
template <typename E>
HeadNormArgs<E> ArgsOf(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                       const Array& key_weight, const NormConfig& norm, const Array& normed) {
  const int64_t head_dim = query_weight.elements();
  const bool has_gates = qkv.columns > (heads + 2 * kv_heads) * head_dim;
  return {.qkv = ElementsOf<E>(qkv),
          .tokens = qkv.rows,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .query_columns = has_gates ? 2 * head_dim : head_dim,
          .query_weight = ElementsOf<E>(query_weight),
          .key_weight = ElementsOf<E>(key_weight),
          .norm = norm,
          .normed = ElementsOf<E>(normed)};
}

// Returns the columns of what is normalised.
int64_t CheckHeads(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                   const Array& key_weight, DeviceKind on) {
  const int64_t head_dim = query_weight.elements();
  const int64_t columns = (heads + 2 * kv_heads) * head_dim;
  Check(heads > 0 && kv_heads > 0, "there are ", heads, " query heads and ", kv_heads, " key-value heads");
  CheckElements("query_weight", query_weight, head_dim, on);
  CheckElements("key_weight", key_weight, head_dim, on);
  CheckMatrix("qkv", qkv, qkv.rows, qkv.columns > columns ? columns + heads * head_dim : columns, on);
  Check(on == DeviceKind::kCpu || head_dim <= kMostGpuNormedHeadDim,
        "heads that are normalised have at most ", kMostGpuNormedHeadDim, " dims on a GPU, not ", head_dim);
  return columns;
}

}  // namespace

Call Operations::HeadNorm(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                          const Array& key_weight, const NormConfig& norm, const Array& normed) const {
  const DeviceKind on = kernels_.kind();
  const int64_t columns = CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, on);
  CheckMatrix("normed", normed, qkv.rows, columns, on);
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(ArgsOf<E>(qkv, heads, kv_heads, query_weight, key_weight, norm, normed));
  });
}

Call Operations::HeadNormBackward(const Array& qkv, int64_t heads, int64_t kv_heads,
                                  const Array& query_weight, const Array& key_weight, const NormConfig& norm,
                                  bool add_weights, const Array& grad, const Array& grad_query_weight,
                                  const Array& grad_key_weight, Workspace work, const Array& grad_qkv) const {
  const DeviceKind on = kernels_.kind();
  const int64_t columns = CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, on);
  const int64_t head_dim = query_weight.elements();
  CheckMatrix("grad", grad, qkv.rows, columns, on);
  Check(grad_qkv.defined() == (qkv.columns > columns),
        "the gradient of qkv has an array of its own where qkv has gates, and no other");
  if (grad_qkv.defined()) {
    CheckMatrix("grad_qkv", grad_qkv, qkv.rows, qkv.columns, on);
  }
  CheckElements("grad_query_weight", grad_query_weight, head_dim, on);
  CheckElements("grad_key_weight", grad_key_weight, head_dim, on);
  CheckWork("HeadNormBackward", work, HeadNormBackwardWorkBytes(on, qkv.rows, head_dim, BytesOf(qkv.type)));
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(HeadNormBackwardArgs<E>{
        .forward = ArgsOf<E>(qkv, heads, kv_heads, query_weight, key_weight, norm, Array()),
        .add_weights = add_weights,
        .grad = ElementsOf<E>(grad),
        .grad_qkv = ElementsOf<E>(grad_qkv.defined() ? grad_qkv : grad),
        .grad_query_weight = ElementsOf<Arithmetic<E>>(grad_query_weight),
        .grad_key_weight = ElementsOf<Arithmetic<E>>(grad_key_weight),
        .work = work});
  });
}

}  // namespace tandem::ops
