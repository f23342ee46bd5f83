// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Returns the dims of a head.
int64_t CheckHeads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                   const at::Tensor& key_weight, DeviceKind on) {
  const int64_t head_dim = query_weight.numel();
  TORCH_CHECK(heads > 0 && kv_heads > 0, "there are ", heads, " query heads and ", kv_heads,
              " key-value heads");
  CheckElements("query_weight", query_weight, head_dim, on);
  CheckElements("key_weight", key_weight, head_dim, on);
  CheckMatrix("qkv", qkv, qkv.size(0), (heads + 2 * kv_heads) * head_dim, on);
  TORCH_CHECK(on == DeviceKind::kCpu || head_dim <= kMostGpuNormedHeadDim,
              "heads that are normalised have at most ", kMostGpuNormedHeadDim, " dims on a GPU, not ",
              head_dim);
  return head_dim;
}

}  // namespace

void Operations::HeadNorm(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                          const at::Tensor& query_weight, const at::Tensor& key_weight, double epsilon,
                          at::Tensor& normed) const {
  const DeviceKind on = kernels_.kind();
  const int64_t head_dim = CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, on);
  CheckMatrix("normed", normed, qkv.size(0), qkv.size(1), on);
  WithElementType(qkv, [&]<typename E>(E) {
    kernels_.Run(HeadNormArgs<E>{.qkv = ElementsOf<E>(qkv),
                                 .tokens = qkv.size(0),
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .query_weight = ElementsOf<E>(query_weight),
                                 .key_weight = ElementsOf<E>(key_weight),
                                 .epsilon = epsilon,
                                 .normed = MutableElementsOf<E>(normed)});
  });
}

void Operations::HeadNormBackward(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                                  const at::Tensor& query_weight, const at::Tensor& key_weight,
                                  double epsilon, bool add_weights, at::Tensor& grad,
                                  at::Tensor& grad_query_weight, at::Tensor& grad_key_weight,
                                  Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t head_dim = CheckHeads(qkv, heads, kv_heads, query_weight, key_weight, on);
  CheckMatrix("grad", grad, qkv.size(0), qkv.size(1), on);
  CheckElements("grad_query_weight", grad_query_weight, head_dim, on);
  CheckElements("grad_key_weight", grad_key_weight, head_dim, on);
  CheckWork("HeadNormBackward", work,
            HeadNormBackwardWorkBytes(on, qkv.size(0), head_dim, qkv.element_size()));
  WithElementType(qkv, [&]<typename E>(E) {
    kernels_.Run(
        HeadNormBackwardArgs<E>{.qkv = ElementsOf<E>(qkv),
                                .tokens = qkv.size(0),
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .head_dim = head_dim,
                                .query_weight = ElementsOf<E>(query_weight),
                                .key_weight = ElementsOf<E>(key_weight),
                                .epsilon = epsilon,
                                .add_weights = add_weights,
                                .grad = MutableElementsOf<E>(grad),
                                .grad_query_weight = MutableElementsOf<Arithmetic<E>>(grad_query_weight),
                                .grad_key_weight = MutableElementsOf<Arithmetic<E>>(grad_key_weight),
                                .work = work});
  });
}

}  // namespace tandem::ops
