// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_heads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/rope.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Throws unless `qkv`, or its gradient, are heads that ops/attention.h reads.
void CheckPacked(const LatentHeads& h, const at::Tensor& qkv, DeviceKind on) {
  TORCH_CHECK(h.heads > 0 && h.content >= 0 && h.rotary > 0 && h.rotary % 2 == 0 && h.content % 2 == 0 &&
                  h.rotary <= kMostRotary,
              "a head's ", h.rotary, " rotated and ", h.content, " other dims must be even, and at most ",
              kMostRotary, " rotated");
  TORCH_CHECK(h.value > 0 && h.value <= h.head_dim(), "values of ", h.value, " dims do not fit in heads of ",
              h.head_dim());
  CheckMatrix("qkv", qkv, qkv.size(0), 3 * h.heads * h.head_dim(), on);
}

// Throws unless what is packed, or its gradients, fit.
void CheckParts(const LatentHeads& h, int64_t tokens, const at::Tensor& query, const at::Tensor& key_value,
                const at::Tensor& down, DeviceKind on) {
  CheckMatrix("query", query, tokens, h.heads * h.head_dim(), on);
  CheckMatrix("key_value", key_value, tokens, h.heads * (h.content + h.value), on);
  CheckMatrix("down", down, tokens, std::max(h.rotary, down.size(1)), on);
}

}  // namespace

void Operations::PackLatentHeads(const LatentHeads& heads, const at::Tensor& query,
                                 const at::Tensor& key_value, const at::Tensor& down, at::Tensor& qkv) const {
  CheckPacked(heads, qkv, kernels_.kind());
  CheckParts(heads, qkv.size(0), query, key_value, down, kernels_.kind());
  WithElementType(qkv, [&]<typename E>(E) {
    kernels_.Run(PackLatentHeadsArgs<E>{.heads = heads,
                                        .tokens = qkv.size(0),
                                        .down_columns = down.size(1),
                                        .query = ElementsOf<E>(query),
                                        .key_value = ElementsOf<E>(key_value),
                                        .down = ElementsOf<E>(down),
                                        .qkv = MutableElementsOf<E>(qkv)});
  });
}

void Operations::UnpackLatentHeads(const LatentHeads& heads, const at::Tensor& grad_qkv,
                                   at::Tensor& grad_query, at::Tensor& grad_key_value,
                                   at::Tensor& grad_down) const {
  CheckPacked(heads, grad_qkv, kernels_.kind());
  CheckParts(heads, grad_qkv.size(0), grad_query, grad_key_value, grad_down, kernels_.kind());
  WithElementType(grad_qkv, [&]<typename E>(E) {
    kernels_.Run(UnpackLatentHeadsArgs<E>{.heads = heads,
                                          .tokens = grad_qkv.size(0),
                                          .down_columns = grad_down.size(1),
                                          .grad_qkv = ElementsOf<E>(grad_qkv),
                                          .grad_query = MutableElementsOf<E>(grad_query),
                                          .grad_key_value = MutableElementsOf<E>(grad_key_value),
                                          .grad_down = MutableElementsOf<E>(grad_down)});
  });
}

void LatentRotaryTables(const LatentHeads& heads, double theta, at::Tensor& cosines, at::Tensor& sines) {
  CheckMatrix("cosines", cosines, cosines.size(0), heads.head_dim() / 2, DeviceKind::kCpu);
  at::Tensor turned_cosines = at::empty({cosines.size(0), heads.rotary / 2}, cosines.options());
  at::Tensor turned_sines = at::empty({cosines.size(0), heads.rotary / 2}, cosines.options());
  RopeTables(theta, {}, turned_cosines, turned_sines);
  cosines.fill_(1);
  sines.fill_(0);
  cosines.narrow(1, 0, heads.rotary / 2).copy_(turned_cosines);
  sines.narrow(1, 0, heads.rotary / 2).copy_(turned_sines);
}

}  // namespace tandem::ops
