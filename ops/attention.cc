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

void CheckWork(const at::Tensor& work, int64_t elements) {
  TORCH_CHECK(work.numel() >= elements && work.is_contiguous(), "attention needs ", elements,
              " elements of work memory, not ", work.numel());
}

}  // namespace

void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
               at::Tensor& work) {
  const cpu::AttentionSizes sizes = Check(shape, qkv, context, lse);
  CheckWork(work, AttentionWorkElements(shape.length, shape.head_dim, work.element_size()));
  WithElementType(qkv, [&]<typename E>(E) {
    cpu::BestKernels<E>().attention(sizes, ElementsOf<E>(qkv), MutableElementsOf<E>(context),
                                    MutableElementsOf<Arithmetic<E>>(lse),
                                    MutableElementsOf<Arithmetic<E>>(work));
  });
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                       const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                       at::Tensor& work) {
  const cpu::AttentionSizes sizes = Check(shape, qkv, context, lse);
  CheckMatrix("grad_context", grad_context, context.size(0), context.size(1));
  CheckMatrix("grad_qkv", grad_qkv, qkv.size(0), qkv.size(1));
  CheckWork(work, AttentionBackwardWorkElements(shape.length, shape.head_dim, work.element_size()));
  WithElementType(qkv, [&]<typename E>(E) {
    cpu::BestKernels<E>().attention_backward(
        sizes, ElementsOf<E>(qkv), ElementsOf<E>(context), ElementsOf<Arithmetic<E>>(lse),
        ElementsOf<E>(grad_context), MutableElementsOf<E>(grad_qkv), MutableElementsOf<Arithmetic<E>>(work));
  });
}

}  // namespace tandem::ops
