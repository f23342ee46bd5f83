// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention_run.h"

#include <c10/core/Device.h>

#include "ops/attention_work.h"
#include "tests/ops/compare.h"

namespace tandem::ops::test {

std::vector<at::Tensor> AttentionOutputs(const AttentionShape& shape, const at::Tensor& qkv) {
  const at::ScalarType type = qkv.scalar_type();
  return {
      FilledWithNan({qkv.size(0), shape.context_columns()}, type).to(qkv.device()),
      FilledWithNan({shape.sequences, shape.heads, shape.length}, StatisticsOf(type)).to(qkv.device()),
      FilledWithNan({qkv.size(0), qkv.size(1)}, type).to(qkv.device()),
  };
}

void RunAttention(const Operations& ops, const AttentionShape& shape, const at::Tensor& qkv,
                  const at::Tensor& documents, const at::Tensor& grad_context, std::vector<at::Tensor>& out) {
  const DeviceKind kind = ops.kind();
  const at::DeviceType device = qkv.device().type();
  ops.Attention(shape, qkv, documents, out[0], out[1],
                WorkMemory(AttentionWorkBytes(kind, shape, qkv.element_size()), device))();
  ops.AttentionBackward(shape, qkv, documents, out[0], out[1], grad_context, out[2],
                        WorkMemory(AttentionBackwardWorkBytes(kind, shape, qkv.element_size()), device))();
}

}  // namespace tandem::ops::test
