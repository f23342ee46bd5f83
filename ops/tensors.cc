// SPDX-License-Identifier: Apache-2.0
#include "ops/tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "ops/array_checks.h"

namespace tandem::ops {
namespace {

ElementKind KindOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ElementKind::kFloat;
    case at::kDouble:
      return ElementKind::kDouble;
    case at::kBFloat16:
      return ElementKind::kBf16;
    case at::kLong:
      return ElementKind::kInt64;
    case at::kByte:
    case at::kBool:
      return ElementKind::kByte;
    default:
      throw std::invalid_argument(absl::StrCat("no array has elements of ", c10::toString(type)));
  }
}

at::ScalarType ScalarTypeOf(ElementKind type) {
  static constexpr at::ScalarType kTypes[] = {at::kByte,     at::kFloat, at::kDouble,
                                              at::kBFloat16, at::kLong,  at::kByte};
  return kTypes[static_cast<int>(type)];
}

}  // namespace

Array ArrayOf<at::Tensor>::Of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return {};
  }
  const int64_t dims = tensor.dim();
  const int64_t rows = dims == 0 ? 1 : tensor.size(0);
  int64_t columns = 1;
  for (int64_t dim = 1; dim < dims; ++dim) {
    columns *= tensor.size(dim);
  }
  Check(dims <= 2 || tensor.is_contiguous(), "a tensor of ", dims, " dims must be contiguous");
  Array array(tensor.const_data_ptr(), KindOf(tensor.scalar_type()),
              tensor.is_cuda() ? DeviceKind::kGpu : DeviceKind::kCpu, rows, columns);
  if (dims == 1 || dims == 2) {
    array.row_stride = tensor.stride(0);
    array.column_stride = dims == 2 ? tensor.stride(1) : 1;
  }
  return array;
}

at::Tensor TensorOf(const Array& array) {
  if (!array.defined()) {
    return {};
  }
  // With a target device, LibTorch does not ask CUDA where the memory is.
  const c10::Device device = array.on == DeviceKind::kGpu
                                 ? c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice()
                                 : c10::Device(c10::kCPU);
  return at::for_blob(array.begin, {array.rows, array.columns})
      .strides({array.row_stride, array.column_stride})
      .options(at::TensorOptions(ScalarTypeOf(array.type)).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace tandem::ops
