// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/element_kind.h"
#include "device/memory.h"
#include "device/static_arena.h"

// Memory of a device as LibTorch's tensors, and tensors as memory.
namespace tandem::device {

at::ScalarType ScalarTypeOf(ElementKind kind);
ElementKind KindOf(const at::Tensor& tensor);

// The elements of a contiguous tensor, as long as it lives.
Memory MemoryOf(const at::Tensor& tensor);

// Bytes of a row of a matrix.
int64_t RowBytesOf(const at::Tensor& matrix);

// A contiguous tensor at the beginning of `memory`, which is of `device`; all of it where no shape is given.
// Throws std::invalid_argument where it does not fit.
at::Tensor TensorIn(const Device& device, Memory memory, const std::vector<int64_t>& shape,
                    at::ScalarType type);
at::Tensor FlatTensorIn(const Device& device, Memory memory, at::ScalarType type);
at::Tensor FlatTensorIn(const Device& device, Memory memory, ElementKind kind);

// Of what lies there in the arena, which is of `device`.
at::Tensor TensorAt(const Device& device, const StaticArena& arena, int64_t offset,
                    const std::vector<int64_t>& shape, at::ScalarType type);

}  // namespace tandem::device
