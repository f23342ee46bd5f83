// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_access.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "ops/attention.h"

namespace tandem::ops {
namespace {

bool IsThere(const at::Tensor& tensor, DeviceKind device) {
  return device == DeviceKind::kGpu ? tensor.is_cuda() : tensor.is_cpu();
}

const char* OnThe(DeviceKind device) { return device == DeviceKind::kGpu ? "on a GPU" : "on the CPU"; }

}  // namespace

ElementKind ElementKindOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ElementKind::kFloat;
    case at::kDouble:
      return ElementKind::kDouble;
    case at::kBFloat16:
      return ElementKind::kBf16;
    default:
      TORCH_CHECK(false, "operations compute in float32, float64 or bfloat16, not ", tensor.scalar_type());
  }
}

template <typename E>
const E* ElementsOf(const at::Tensor& tensor) {
  return tensor.const_data_ptr<E>();
}
template <typename E>
E* MutableElementsOf(at::Tensor& tensor) {
  return tensor.mutable_data_ptr<E>();
}
template <>
const Bf16* ElementsOf(const at::Tensor& tensor) {
  return reinterpret_cast<const Bf16*>(tensor.const_data_ptr<at::BFloat16>());
}
template <>
Bf16* MutableElementsOf(at::Tensor& tensor) {
  return reinterpret_cast<Bf16*>(tensor.mutable_data_ptr<at::BFloat16>());
}
template const float* ElementsOf(const at::Tensor&);
template const double* ElementsOf(const at::Tensor&);
template float* MutableElementsOf(at::Tensor&);
template double* MutableElementsOf(at::Tensor&);

void CheckMatrix(const char* name, const at::Tensor& tensor, int64_t rows, int64_t columns,
                 DeviceKind device) {
  TORCH_CHECK(tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns &&
                  tensor.is_contiguous() && IsThere(tensor, device),
              name, " must be a contiguous [", rows, ", ", columns, "] matrix ", OnThe(device), ", not ",
              tensor.sizes());
}

void CheckElements(const char* name, const at::Tensor& tensor, int64_t elements, DeviceKind device) {
  TORCH_CHECK(tensor.numel() == elements && tensor.is_contiguous() && IsThere(tensor, device), name,
              " must be contiguous with ", elements, " elements ", OnThe(device), ", not ", tensor.sizes());
}

void CheckTokens(const at::Tensor& tokens, DeviceKind device) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong && IsThere(tokens, device) &&
                  (tokens.size(1) <= 1 || tokens.stride(1) == 1),
              "token ids must be an int64 [B, S] matrix with adjacent columns ", OnThe(device), ", not ",
              tokens.sizes());
}

void CheckRotation(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, const at::Tensor& x,
                   DeviceKind device) {
  const int64_t length = cosines.size(0);
  const int64_t head_dim = 2 * cosines.size(1);
  CheckMatrix("cosines", cosines, length, head_dim / 2, device);
  CheckMatrix("sines", sines, length, head_dim / 2, device);
  TORCH_CHECK(x.dim() == 2 && IsThere(x, device) && x.stride(1) == 1 && x.size(0) % length == 0 &&
                  x.size(1) >= heads * head_dim,
              "x must have whole sequences of ", length, " rows and at least ", heads * head_dim,
              " columns, not ", x.sizes());
}

void CheckAttention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                    const at::Tensor& lse, DeviceKind device) {
  TORCH_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, shape.heads, " heads cannot share ",
              shape.kv_heads, " key-value heads evenly");
  const int64_t tokens = shape.sequences * shape.length;
  CheckMatrix("qkv", qkv, tokens, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, device);
  CheckMatrix("context", context, tokens, shape.heads * shape.head_dim, device);
  CheckElements("lse", lse, tokens * shape.heads, device);
}

void CheckBlock(const at::Tensor& logits, int64_t rows, int64_t first, int64_t vocabulary,
                DeviceKind device) {
  CheckMatrix("logits", logits, rows, logits.size(1), device);
  TORCH_CHECK(first >= 0 && first + logits.size(1) <= vocabulary, "a block of ", logits.size(1),
              " logits from ", first, " on is not within a vocabulary of ", vocabulary);
}

void CheckWork(const char* operation, Workspace work, int64_t bytes) {
  TORCH_CHECK(work.bytes >= bytes && (work.begin != nullptr || bytes == 0), operation, " needs ", bytes,
              " bytes of work memory, not ", work.bytes);
}

TokenGrid::TokenGrid(const at::Tensor& tokens) {
  CheckTokens(tokens);
  data_ = tokens.const_data_ptr<int64_t>();
  sequences_ = tokens.size(0);
  length_ = tokens.size(1);
  stride_ = tokens.stride(0);
}

int64_t TokenGrid::FirstRowOf(int64_t id) const {
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    const int64_t* const begin = data_ + sequence * stride_;
    const int64_t* const found = std::find(begin, begin + length_, id);
    if (found != begin + length_) {
      return sequence * length_ + (found - begin);
    }
  }
  return size();
}

void TokenGrid::ThrowOutside(int64_t id, int64_t sequence, int64_t position, int64_t vocabulary) {
  TORCH_CHECK_INDEX(false, "token id ", id, " of sequence ", sequence, ", position ", position,
                    " is outside the vocabulary of ", vocabulary);
}

}  // namespace tandem::ops
