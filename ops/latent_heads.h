// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/device_kind.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

// Heads of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): a part of a query and
// key is rotated, the rest is not, and values may be shorter.
struct LatentHeads {
  int64_t heads = 0;
  int64_t content = 0;  // dims of a query and key that are not rotated
  int64_t rotary = 0;   // those that are, even
  int64_t value = 0;    // dims of a value, at most head_dim()

  int64_t head_dim() const { return content + rotary; }
};

// Throws unless the tensors fit, on that device; `query` and so on may be their gradients.
void CheckLatentHeads(const LatentHeads& heads, const at::Tensor& query, const at::Tensor& key_value,
                      const at::Tensor& down, const at::Tensor& qkv, DeviceKind device);

// Lays heads out as ops/attention.h reads them, qkv: [T, 3 heads d], d = head_dim(), with zeros behind the
// values, so that the rotation of ops/rope.h over whole heads turns the right pairs: dims 2 i and 2 i + 1 of
// a rotary part become dims i and i + d / 2, and its tables turn no other (LatentRotaryTables).
//   query: [T, heads (content + rotary)]; key_value: [T, heads (content + value)];
//   down: [T, ≥ rotary], whose last columns are the rotary part of a key, which all heads share.
// On the CPU; nothing is allocated.
void PackLatentHeads(const LatentHeads& heads, const at::Tensor& query, const at::Tensor& key_value,
                     const at::Tensor& down, at::Tensor& qkv);

// The transpose: overwrites grad_query, grad_key_value, and of grad_down the last columns, summed over the
// heads in their order and rounded once.
void UnpackLatentHeads(const LatentHeads& heads, const at::Tensor& grad_qkv, at::Tensor& grad_query,
                       at::Tensor& grad_key_value, at::Tensor& grad_down);

// Tables for ops/rope.h, [S, d / 2]: the first rotary / 2 columns turn, the others leave what they meet as it
// is, to the bit.
void LatentRotaryTables(const LatentHeads& heads, double theta, at::Tensor& cosines, at::Tensor& sines);

}  // namespace tandem::ops
