// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "ops/array_checks.h"
#include "ops/attention_work.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

// Throws unless query heads share key-value heads evenly and documents are given if and only if the shape
// has them.
DocumentStarts StartsOf(const AttentionShape& shape, const Array& documents, DeviceKind on) {
  Check(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, shape.heads, " heads cannot share ",
        shape.kv_heads, " key-value heads evenly");
  Check(documents.defined() == shape.documents, "documents must be ",
        shape.documents ? "given, because the shape has" : "undefined, because the shape has no",
        " documents");
  return DocumentsOf(documents, shape.sequences, shape.length, on);
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
  const int64_t tokens = shape.tokens();
  return WithElementType(qkv, [&]<typename E>(E) {
    const AttentionArgs<E> args{
        .shape = shape,
        .qkv = MatrixOf<E>("qkv", qkv, tokens, shape.qkv_columns(), on),
        .documents = StartsOf(shape, documents, on),
        .context = MatrixOf<E>("context", context, tokens, shape.context_columns(), on),
        .lse = ElementsOf<Arithmetic<E>>("lse", lse, tokens * shape.heads, on),
        .work = Checked("Attention", work, AttentionWorkBytes(on, shape, sizeof(E)))};
    return tokens == 0 ? Call([] {}) : kernels_.Bind(args);
  });
}

Call Operations::AttentionBackward(const AttentionShape& shape, const Array& qkv, const Array& documents,
                                   const Array& context, const Array& lse, const Array& grad_context,
                                   const Array& grad_qkv, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = shape.tokens();
  return WithElementType(qkv, [&]<typename E>(E) {
    const AttentionBackwardArgs<E> args{
        .shape = shape,
        .qkv = MatrixOf<E>("qkv", qkv, tokens, shape.qkv_columns(), on),
        .documents = StartsOf(shape, documents, on),
        .context = MatrixOf<E>("context", context, tokens, shape.context_columns(), on),
        .lse = ElementsOf<Arithmetic<E>>("lse", lse, tokens * shape.heads, on),
        .grad_context = MatrixOf<E>("grad_context", grad_context, tokens, shape.context_columns(), on),
        .grad_qkv = MatrixOf<E>("grad_qkv", grad_qkv, tokens, shape.qkv_columns(), on),
        .work = Checked("AttentionBackward", work, AttentionBackwardWorkBytes(on, shape, sizeof(E)))};
    return tokens == 0 ? Call([] {}) : kernels_.Bind(args);
  });
}

}  // namespace tandem::ops
