// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/element_kind.h"
#include "device/memory.h"
#include "device/static_arena.h"

// Makes LibTorch's tensors from memory of a device, and memory from tensors.
namespace tandem::device {

at::ScalarType ScalarTypeOf(ElementKind kind);
ElementKind KindOf(const at::Tensor& tensor);

// The elements of a contiguous tensor, as long as it lives.
Memory MemoryOf(const at::Tensor& tensor);

// Bytes of a row of a matrix.
int64_t RowBytesOf(const at::Tensor& matrix);

// Returns a contiguous tensor at the beginning of `memory`, which is of `device`; FlatTensorIn's has all of
// its elements. Throws std::invalid_argument if the tensor does not fit.
at::Tensor TensorIn(const Device& device, Memory memory, const std::vector<int64_t>& shape,
                    at::ScalarType type);
at::Tensor FlatTensorIn(const Device& device, Memory memory, at::ScalarType type);
at::Tensor FlatTensorIn(const Device& device, Memory memory, ElementKind kind);

// Returns the tensor at byte `offset` of the arena, which is of `device`.
at::Tensor TensorAt(const Device& device, const StaticArena& arena, int64_t offset,
                    const std::vector<int64_t>& shape, at::ScalarType type);

}  // namespace tandem::device
