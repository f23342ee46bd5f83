// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/core/Tensor.h>

#include "ops/attention_work.h"
#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

cpu::AttentionSizes Check(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                          const at::Tensor& lse) {
  CheckAttention(shape, qkv, context, lse);
  return {shape.sequences, shape.length, shape.heads, shape.kv_heads, shape.head_dim};
}

}  // namespace

void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
               Workspace work) {
  const cpu::AttentionSizes sizes = Check(shape, qkv, context, lse);
  CheckWork("attention", work, AttentionWorkBytes(DeviceKind::kCpu, shape, qkv.element_size()));
  WithElementType(qkv, [&]<typename E>(E) {
    cpu::BestKernels<E>().attention(sizes, ElementsOf<E>(qkv), MutableElementsOf<E>(context),
                                    MutableElementsOf<Arithmetic<E>>(lse),
                                    static_cast<Arithmetic<E>*>(work.begin));
  });
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                       const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                       Workspace work) {
  const cpu::AttentionSizes sizes = Check(shape, qkv, context, lse);
  CheckMatrix("grad_context", grad_context, context.size(0), context.size(1));
  CheckMatrix("grad_qkv", grad_qkv, qkv.size(0), qkv.size(1));
  CheckWork("attention's backward", work,
            AttentionBackwardWorkBytes(DeviceKind::kCpu, shape, qkv.element_size()));
  WithElementType(qkv, [&]<typename E>(E) {
    cpu::BestKernels<E>().attention_backward(
        sizes, ElementsOf<E>(qkv), ElementsOf<E>(context), ElementsOf<Arithmetic<E>>(lse),
        ElementsOf<E>(grad_context), MutableElementsOf<E>(grad_qkv), static_cast<Arithmetic<E>*>(work.begin));
  });
}

}  // namespace tandem::ops
