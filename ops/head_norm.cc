// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {
namespace {

template <typename E>
HeadNormArgs<E> ArgsOf(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                       const Array& key_weight, const NormConfig& norm, DeviceKind on) {
  const int64_t head_dim = query_weight.elements();
  const int64_t columns = (heads + 2 * kv_heads) * head_dim;
  const int64_t gates = qkv.columns > columns ? heads * head_dim : 0;
  Check(heads > 0 && kv_heads > 0, "there must be query heads and key-value heads, not ", heads, " and ",
        kv_heads);
  Check(on == DeviceKind::kCpu || head_dim <= kMostGpuNormedHeadDim,
        "heads that are normalised may have at most ", kMostGpuNormedHeadDim, " dims on a GPU, not ",
        head_dim);
  return {.qkv = MatrixOf<E>("qkv", qkv, qkv.rows, columns + gates, on),
          .tokens = qkv.rows,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .query_columns = gates > 0 ? 2 * head_dim : head_dim,
          .query_weight = ElementsOf<E>("query_weight", query_weight, head_dim, on),
          .key_weight = ElementsOf<E>("key_weight", key_weight, head_dim, on),
          .norm = norm,
          .normed = nullptr};
}

}  // namespace

Call Operations::HeadNorm(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                          const Array& key_weight, const NormConfig& norm, const Array& normed) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(qkv, [&]<typename E>(E) {
    HeadNormArgs<E> args = ArgsOf<E>(qkv, heads, kv_heads, query_weight, key_weight, norm, on);
    args.normed = MatrixOf<E>("normed", normed, args.tokens, args.normed_columns(), on);
    return kernels_.Bind(args);
  });
}

Call Operations::HeadNormBackward(const Array& qkv, int64_t heads, int64_t kv_heads,
                                  const Array& query_weight, const Array& key_weight, const NormConfig& norm,
                                  bool add_weights, const Array& grad, const Array& grad_query_weight,
                                  const Array& grad_key_weight, Workspace work, const Array& grad_qkv) const {
  const DeviceKind on = kernels_.kind();
  return WithElementType(qkv, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    HeadNormBackwardArgs<E> args{
        .forward = ArgsOf<E>(qkv, heads, kv_heads, query_weight, key_weight, norm, on),
        .add_weights = add_weights};
    const HeadNormArgs<E>& forward = args.forward;
    Check(grad_qkv.defined() == (qkv.columns > forward.normed_columns()),
          "grad_qkv must be given if qkv has gates, and only then");
    args.grad = MatrixOf<E>("grad", grad, qkv.rows, forward.normed_columns(), on);
    args.grad_qkv = MatrixOf<E>("grad_qkv", grad_qkv.defined() ? grad_qkv : grad, qkv.rows, qkv.columns, on);
    args.grad_query_weight = ElementsOf<T>("grad_query_weight", grad_query_weight, forward.head_dim, on);
    args.grad_key_weight = ElementsOf<T>("grad_key_weight", grad_key_weight, forward.head_dim, on);
    args.work =
        Checked(args.kName, work, HeadNormBackwardWorkBytes(on, qkv.rows, forward.head_dim, sizeof(E)));
    return kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
