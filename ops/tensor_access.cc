// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_access.h"

#include <ATen/core/Tensor.h>

#include "ops/sparse_work.h"

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

void CheckRows(const char* name, const at::Tensor& tensor, DeviceKind device) {
  TORCH_CHECK(tensor.dim() == 2 && (tensor.size(1) <= 1 || tensor.stride(1) == 1) && IsThere(tensor, device),
              name, " must be a matrix with adjacent columns ", OnThe(device), ", not ", tensor.sizes());
}

Tokens TokensOf(const at::Tensor& tokens, DeviceKind device) {
  CheckRows("token ids", tokens, device);
  return {tokens.const_data_ptr<int64_t>(), tokens.size(0), tokens.size(1), tokens.stride(0)};
}

void ThrowNoStatistics() {
  TORCH_CHECK(false, "routers and their probabilities are of float32 or float64, not bfloat16");
}

void CheckExperts(const char* operation, int64_t experts, DeviceKind device) {
  TORCH_CHECK(device == DeviceKind::kCpu || experts <= kMostGpuGroups, operation, " on a GPU takes at most ",
              kMostGpuGroups, " experts, or ranks, not ", experts);
}

void CheckWork(const char* operation, Workspace work, int64_t bytes) {
  TORCH_CHECK(work.bytes >= bytes && (work.begin != nullptr || bytes == 0), operation, " needs ", bytes,
              " bytes of work memory, not ", work.bytes);
}

}  // namespace tandem::ops
