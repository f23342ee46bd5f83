// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/core/Tensor.h>

#include "ops/attention_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Throws unless heads share key-value heads evenly and the tensors are of `shape`.
void CheckInputs(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& documents,
                 DeviceKind on) {
  TORCH_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, shape.heads, " heads cannot share ",
              shape.kv_heads, " key-value heads evenly");
  CheckMatrix("qkv", qkv, shape.tokens(), shape.qkv_columns(), on);
  TORCH_CHECK(documents.defined() == shape.documents, "a shape ", shape.documents ? "with" : "without",
              " documents comes ", documents.defined() ? "with" : "without", " their starts");
  if (shape.documents) {
    CheckRows("documents", documents, on);
    TORCH_CHECK(documents.size(0) == shape.sequences && documents.size(1) == shape.length,
                "documents must be [", shape.sequences, ", ", shape.length, "], not ", documents.sizes());
  }
}

void CheckOutputs(const AttentionShape& shape, const at::Tensor& context, const at::Tensor& lse,
                  DeviceKind on) {
  CheckMatrix("context", context, shape.tokens(), shape.context_columns(), on);
  CheckElements("lse", lse, shape.tokens() * shape.heads, on);
}

DocumentStarts StartsIn(const at::Tensor& documents) {
  if (!documents.defined()) {
    return {};
  }
  return {.starts = documents.const_data_ptr<int64_t>(), .stride = documents.stride(0)};
}

}  // namespace

void Operations::PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const {
  if (shape.tokens() > 0) {
    kernels_.PrepareAttention(shape, element_bytes);
  }
}

void Operations::Attention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& documents,
                           at::Tensor& context, at::Tensor& lse, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckInputs(shape, qkv, documents, on);
  CheckOutputs(shape, context, lse, on);
  CheckWork("Attention", work, AttentionWorkBytes(on, shape, qkv.element_size()));
  if (shape.tokens() == 0) {
    return;
  }
  WithElementType(qkv, [&]<typename E>(E) {
    kernels_.Run(AttentionArgs<E>{shape, ElementsOf<E>(qkv), StartsIn(documents),
                                  MutableElementsOf<E>(context), MutableElementsOf<Arithmetic<E>>(lse),
                                  work});
  });
}

void Operations::AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv,
                                   const at::Tensor& documents, const at::Tensor& context,
                                   const at::Tensor& lse, const at::Tensor& grad_context,
                                   at::Tensor& grad_qkv, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckInputs(shape, qkv, documents, on);
  CheckOutputs(shape, context, lse, on);
  CheckMatrix("grad_context", grad_context, context.size(0), context.size(1), on);
  CheckMatrix("grad_qkv", grad_qkv, qkv.size(0), qkv.size(1), on);
  CheckWork("AttentionBackward", work, AttentionBackwardWorkBytes(on, shape, qkv.element_size()));
  if (shape.tokens() == 0) {
    return;
  }
  WithElementType(qkv, [&]<typename E>(E) {
    kernels_.Run(AttentionBackwardArgs<E>{.shape = shape,
                                          .qkv = ElementsOf<E>(qkv),
                                          .documents = StartsIn(documents),
                                          .context = ElementsOf<E>(context),
                                          .lse = ElementsOf<Arithmetic<E>>(lse),
                                          .grad_context = ElementsOf<E>(grad_context),
                                          .grad_qkv = MutableElementsOf<E>(grad_qkv),
                                          .work = work});
  });
}

}  // namespace tandem::ops
