// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "ops/array_checks.h"
#include "ops/attention_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Throws unless heads share key-value heads evenly and the tensors are of `shape`.
void CheckInputs(const AttentionShape& shape, const Array& qkv, const Array& documents, DeviceKind on) {
  Check(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, shape.heads, " heads cannot share ",
        shape.kv_heads, " key-value heads evenly");
  CheckMatrix("qkv", qkv, shape.tokens(), shape.qkv_columns(), on);
  Check(documents.defined() == shape.documents, "a shape ", shape.documents ? "with" : "without",
        " documents comes ", documents.defined() ? "with" : "without", " their starts");
}

void CheckOutputs(const AttentionShape& shape, const Array& context, const Array& lse, DeviceKind on) {
  CheckMatrix("context", context, shape.tokens(), shape.context_columns(), on);
  CheckElements("lse", lse, shape.tokens() * shape.heads, on);
}

}  // namespace

void Operations::PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const {
  if (shape.tokens() > 0) {
    kernels_.PrepareAttention(shape, element_bytes);
  }
}

Call Operations::Attention(const AttentionShape& shape, const Array& qkv, const Array& documents,
                           const Array& context, const Array& lse, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckInputs(shape, qkv, documents, on);
  const DocumentStarts starts = DocumentsOf(documents, shape.sequences, shape.length, on);
  CheckOutputs(shape, context, lse, on);
  CheckWork("Attention", work, AttentionWorkBytes(on, shape, BytesOf(qkv.type)));
  if (shape.tokens() == 0) {
    return [] {};
  }
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(AttentionArgs<E>{shape, ElementsOf<E>(qkv), starts, ElementsOf<E>(context),
                                          ElementsOf<Arithmetic<E>>(lse), work});
  });
}

Call Operations::AttentionBackward(const AttentionShape& shape, const Array& qkv, const Array& documents,
                                   const Array& context, const Array& lse, const Array& grad_context,
                                   const Array& grad_qkv, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckInputs(shape, qkv, documents, on);
  const DocumentStarts starts = DocumentsOf(documents, shape.sequences, shape.length, on);
  CheckOutputs(shape, context, lse, on);
  CheckMatrix("grad_context", grad_context, context.rows, context.columns, on);
  CheckMatrix("grad_qkv", grad_qkv, qkv.rows, qkv.columns, on);
  CheckWork("AttentionBackward", work, AttentionBackwardWorkBytes(on, shape, BytesOf(qkv.type)));
  if (shape.tokens() == 0) {
    return [] {};
  }
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(AttentionBackwardArgs<E>{.shape = shape,
                                                  .qkv = ElementsOf<E>(qkv),
                                                  .documents = starts,
                                                  .context = ElementsOf<E>(context),
                                                  .lse = ElementsOf<Arithmetic<E>>(lse),
                                                  .grad_context = ElementsOf<E>(grad_context),
                                                  .grad_qkv = ElementsOf<E>(grad_qkv),
                                                  .work = work});
  });
}

}  // namespace tandem::ops
