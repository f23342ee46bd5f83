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
  CheckWork(work, AttentionWorkElements(shape.length, shape.head_dim, qkv.element_size()));
  WithElementType(qkv, [&]<typename T>(T) {
    cpu::BestKernels<T>().attention(sizes, qkv.const_data_ptr<T>(), context.mutable_data_ptr<T>(),
                                    lse.mutable_data_ptr<T>(), work.mutable_data_ptr<T>());
  });
}

void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                       const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                       at::Tensor& work) {
  const cpu::AttentionSizes sizes = Check(shape, qkv, context, lse);
  CheckMatrix("grad_context", grad_context, context.size(0), context.size(1));
  CheckMatrix("grad_qkv", grad_qkv, qkv.size(0), qkv.size(1));
  CheckWork(work, AttentionBackwardWorkElements(shape.length, shape.head_dim, qkv.element_size()));
  WithElementType(qkv, [&]<typename T>(T) {
    cpu::BestKernels<T>().attention_backward(sizes, qkv.const_data_ptr<T>(), context.const_data_ptr<T>(),
                                             lse.const_data_ptr<T>(), grad_context.const_data_ptr<T>(),
                                             grad_qkv.mutable_data_ptr<T>(), work.mutable_data_ptr<T>());
  });
}

}  // namespace tandem::ops
