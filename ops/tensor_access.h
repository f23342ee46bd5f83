// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/device_kind.h"
#include "ops/workspace.h"

namespace at {
class Tensor;
}

// How the operations look at their tensors. Private to ops/.
namespace tandem::ops {

using device::Arithmetic;
using device::Bf16;

struct AttentionShape;

enum class ElementKind { kFloat, kDouble, kBf16 };

// Throws for any other type of elements.
ElementKind ElementKindOf(const at::Tensor& tensor);

// Calls body(E{}) with the type of the elements in memory: float, double or Bf16.
template <typename Body>
void WithElementType(const at::Tensor& tensor, const Body& body) {
  switch (ElementKindOf(tensor)) {
    case ElementKind::kFloat:
      return body(float{});
    case ElementKind::kDouble:
      return body(double{});
    case ElementKind::kBf16:
      return body(Bf16{});
  }
}

// Where the elements begin. Throw unless they are of type E.
template <typename E>
const E* ElementsOf(const at::Tensor& tensor);
template <typename E>
E* MutableElementsOf(at::Tensor& tensor);
template <>
const Bf16* ElementsOf(const at::Tensor& tensor);
template <>
Bf16* MutableElementsOf(at::Tensor& tensor);

// Throws, naming `name`, unless it is a contiguous matrix of that size on that device.
void CheckMatrix(const char* name, const at::Tensor& tensor, int64_t rows, int64_t columns,
                 DeviceKind device = DeviceKind::kCpu);

// Throws, naming `name`, unless it is contiguous, of that many elements, any shape, on that device.
void CheckElements(const char* name, const at::Tensor& tensor, int64_t elements,
                   DeviceKind device = DeviceKind::kCpu);

// Throws unless they are int64 [B, S] with adjacent columns on that device.
void CheckTokens(const at::Tensor& tokens, DeviceKind device = DeviceKind::kCpu);

// Throws unless x has whole sequences and the columns that are rotated by the tables [S, head_dim / 2].
void CheckRotation(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, const at::Tensor& x,
                   DeviceKind device = DeviceKind::kCpu);

// Throws unless heads share key-value heads evenly and the tensors are of `shape`.
void CheckAttention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                    const at::Tensor& lse, DeviceKind device = DeviceKind::kCpu);

// Throws unless logits are [rows, C], columns [first, first + C) of the vocabulary's.
void CheckBlock(const at::Tensor& logits, int64_t rows, int64_t first, int64_t vocabulary,
                DeviceKind device = DeviceKind::kCpu);

// Throws, naming `operation`, unless that many bytes are there.
void CheckWork(const char* operation, Workspace work, int64_t bytes);

// Token ids [B, S], rows possibly apart (a part of the batch's columns). Valid as long as the tensor.
class TokenGrid {
 public:
  // Throws what CheckTokens throws.
  explicit TokenGrid(const at::Tensor& tokens);

  int64_t size() const { return sequences_ * length_; }

  // The first row whose token has that id; size() where none has.
  int64_t FirstRowOf(int64_t id) const;

  // Calls visit(row, id) for every token in order. Throws c10::IndexError for an id outside [0, vocabulary).
  template <typename Visit>
  void ForEach(int64_t vocabulary, const Visit& visit) const {
    int64_t row = 0;
    for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
      for (int64_t position = 0; position < length_; ++position, ++row) {
        const int64_t id = data_[sequence * stride_ + position];
        if (id < 0 || id >= vocabulary) {
          ThrowOutside(id, sequence, position, vocabulary);
        }
        visit(row, id);
      }
    }
  }

 private:
  [[noreturn]] static void ThrowOutside(int64_t id, int64_t sequence, int64_t position, int64_t vocabulary);

  const int64_t* data_;
  int64_t sequences_;
  int64_t length_;
  int64_t stride_;
};

}  // namespace tandem::ops
