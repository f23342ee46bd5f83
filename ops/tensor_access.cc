#include "ops/tensor_access.h"

#include <ATen/core/Tensor.h>

namespace tandem::ops {

bool IsDouble(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK(type == at::kDouble || type == at::kFloat, "operations compute in float32 or float64, not ",
              type);
  return type == at::kDouble;
}

void CheckMatrix(const char* name, const at::Tensor& tensor, int64_t rows, int64_t columns) {
  TORCH_CHECK(tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns &&
                  tensor.is_contiguous() && tensor.is_cpu(),
              name, " must be a contiguous [", rows, ", ", columns, "] matrix on the CPU, not ",
              tensor.sizes());
}

void CheckElements(const char* name, const at::Tensor& tensor, int64_t elements) {
  TORCH_CHECK(tensor.numel() == elements && tensor.is_contiguous() && tensor.is_cpu(), name,
              " must be contiguous with ", elements, " elements on the CPU, not ", tensor.sizes());
}

TokenGrid::TokenGrid(const at::Tensor& tokens) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong && tokens.is_cpu() &&
                  (tokens.size(1) <= 1 || tokens.stride(1) == 1),
              "token ids must be an int64 [B, S] matrix with adjacent columns on the CPU, not ",
              tokens.sizes());
  data_ = tokens.const_data_ptr<int64_t>();
  sequences_ = tokens.size(0);
  length_ = tokens.size(1);
  stride_ = tokens.stride(0);
}

void TokenGrid::ThrowOutside(int64_t id, int64_t sequence, int64_t position, int64_t vocabulary) {
  TORCH_CHECK_INDEX(false, "token id ", id, " of sequence ", sequence, ", position ", position,
                    " is outside the vocabulary of ", vocabulary);
}

}  // namespace tandem::ops
