// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_heads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "ops/cpu/kernels.h"
#include "ops/rope.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

constexpr int64_t kMostRotary = 512;  // its sums are on the stack

// Where the elements of a head go: first half, then second half.
template <typename E>
void PackHead(const LatentHeads& h, const E* content, const E* rotary, E* packed) {
  const int64_t half = h.head_dim() / 2;
  const int64_t turned = h.rotary / 2;
  for (int64_t i = 0; i < turned; ++i) {
    packed[i] = rotary[2 * i];
    packed[half + i] = rotary[2 * i + 1];
  }
  const int64_t rest = half - turned;
  std::copy_n(content, rest, packed + turned);
  std::copy_n(content + rest, rest, packed + half + turned);
}

template <typename E>
void UnpackContent(const LatentHeads& h, const E* packed, E* content) {
  const int64_t half = h.head_dim() / 2;
  const int64_t turned = h.rotary / 2;
  const int64_t rest = half - turned;
  std::copy_n(packed + turned, rest, content);
  std::copy_n(packed + half + turned, rest, content + rest);
}

// halves: [2, rotary / 2], first halves first.
template <typename E>
void Interleave(const LatentHeads& h, const E* first, const E* second, E* rotary) {
  for (int64_t i = 0; i < h.rotary / 2; ++i) {
    rotary[2 * i] = first[i];
    rotary[2 * i + 1] = second[i];
  }
}

}  // namespace

void CheckLatentHeads(const LatentHeads& h, const at::Tensor& query, const at::Tensor& key_value,
                      const at::Tensor& down, const at::Tensor& qkv, DeviceKind device) {
  TORCH_CHECK(h.heads > 0 && h.content >= 0 && h.rotary > 0 && h.rotary % 2 == 0 && h.content % 2 == 0 &&
                  h.rotary <= kMostRotary,
              "a head's ", h.rotary, " rotated and ", h.content, " other dims must be even, and at most ",
              kMostRotary, " rotated");
  TORCH_CHECK(h.value > 0 && h.value <= h.head_dim(), "values of ", h.value, " dims do not fit in heads of ",
              h.head_dim());
  const int64_t tokens = query.size(0);
  CheckMatrix("query", query, tokens, h.heads * h.head_dim(), device);
  CheckMatrix("key_value", key_value, tokens, h.heads * (h.content + h.value), device);
  CheckMatrix("down", down, tokens, std::max(h.rotary, down.size(1)), device);
  CheckMatrix("qkv", qkv, tokens, 3 * h.heads * h.head_dim(), device);
}

void PackLatentHeads(const LatentHeads& h, const at::Tensor& query, const at::Tensor& key_value,
                     const at::Tensor& down, at::Tensor& qkv) {
  CheckLatentHeads(h, query, key_value, down, qkv, DeviceKind::kCpu);
  const int64_t d = h.head_dim();
  WithElementType(qkv, [&]<typename E>(E) {
    const E* q = ElementsOf<E>(query);
    const E* kv = ElementsOf<E>(key_value);
    const E* shared = ElementsOf<E>(down) + down.size(1) - h.rotary;
    E* out = MutableElementsOf<E>(qkv);
    for (int64_t token = 0; token < query.size(0); ++token, shared += down.size(1), out += 3 * h.heads * d) {
      for (int64_t head = 0; head < h.heads; ++head, q += d, kv += h.content + h.value) {
        PackHead(h, q, q + h.content, out + head * d);
        PackHead(h, kv, shared, out + (h.heads + head) * d);
        E* const value = out + (2 * h.heads + head) * d;
        std::fill(std::copy_n(kv + h.content, h.value, value), value + d, E{});
      }
    }
  });
}

void UnpackLatentHeads(const LatentHeads& h, const at::Tensor& grad_qkv, at::Tensor& grad_query,
                       at::Tensor& grad_key_value, at::Tensor& grad_down) {
  CheckLatentHeads(h, grad_query, grad_key_value, grad_down, grad_qkv, DeviceKind::kCpu);
  const int64_t d = h.head_dim();
  const int64_t half = d / 2;
  const int64_t turned = h.rotary / 2;
  WithElementType(grad_qkv, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    const E* in = ElementsOf<E>(grad_qkv);
    E* q = MutableElementsOf<E>(grad_query);
    E* kv = MutableElementsOf<E>(grad_key_value);
    E* shared = MutableElementsOf<E>(grad_down) + grad_down.size(1) - h.rotary;
    std::array<T, kMostRotary> sums;
    std::array<E, kMostRotary> rounded;
    for (int64_t token = 0; token < grad_qkv.size(0);
         ++token, in += 3 * h.heads * d, shared += grad_down.size(1)) {
      std::fill_n(sums.begin(), h.rotary, T{0});
      for (int64_t head = 0; head < h.heads; ++head, q += d, kv += h.content + h.value) {
        const E* const of_query = in + head * d;
        UnpackContent(h, of_query, q);
        Interleave(h, of_query, of_query + half, q + h.content);
        const E* const of_key = in + (h.heads + head) * d;
        UnpackContent(h, of_key, kv);
        kernels.accumulate(of_key, turned, sums.data());
        kernels.accumulate(of_key + half, turned, sums.data() + turned);
        std::copy_n(in + (2 * h.heads + head) * d, h.value, kv + h.content);
      }
      kernels.narrow(sums.data(), h.rotary, rounded.data());
      Interleave(h, rounded.data(), rounded.data() + turned, shared);
    }
  });
}

void LatentRotaryTables(const LatentHeads& heads, double theta, at::Tensor& cosines, at::Tensor& sines) {
  CheckMatrix("cosines", cosines, cosines.size(0), heads.head_dim() / 2);
  at::Tensor turned_cosines = at::empty({cosines.size(0), heads.rotary / 2}, cosines.options());
  at::Tensor turned_sines = at::empty({cosines.size(0), heads.rotary / 2}, cosines.options());
  RopeTables(theta, turned_cosines, turned_sines);
  cosines.fill_(1);
  sines.fill_(0);
  cosines.narrow(1, 0, heads.rotary / 2).copy_(turned_cosines);
  sines.narrow(1, 0, heads.rotary / 2).copy_(turned_sines);
}

}  // namespace tandem::ops
