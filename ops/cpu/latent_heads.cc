// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_heads.h"

#include <algorithm>
#include <array>

#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {
namespace {

// The places of a head's elements: first half, then second half.
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

template <typename E>
void Run(const PackLatentHeadsArgs<E>& args) {
  const LatentHeads& h = args.heads;
  const int64_t d = h.head_dim();
  const E* q = args.query;
  const E* kv = args.key_value;
  const E* shared = args.down + args.down_columns - h.rotary;
  E* out = args.qkv;
  for (int64_t token = 0; token < args.tokens; ++token, shared += args.down_columns, out += 3 * h.heads * d) {
    for (int64_t head = 0; head < h.heads; ++head, q += d, kv += h.content + h.value) {
      PackHead(h, q, q + h.content, out + head * d);
      PackHead(h, kv, shared, out + (h.heads + head) * d);
      E* const value = out + (2 * h.heads + head) * d;
      std::fill(std::copy_n(kv + h.content, h.value, value), value + d, E{});
    }
  }
}
TANDEM_CPU_KERNEL(PackLatentHeadsArgs)

template <typename E>
void Run(const UnpackLatentHeadsArgs<E>& args) {
  using T = Arithmetic<E>;
  const LatentHeads& h = args.heads;
  const int64_t d = h.head_dim();
  const int64_t half = d / 2;
  const int64_t turned = h.rotary / 2;
  const E* in = args.grad_qkv;
  E* q = args.grad_query;
  E* kv = args.grad_key_value;
  E* shared = args.grad_down + args.down_columns - h.rotary;
  std::array<T, kMostRotary> sums;
  std::array<E, kMostRotary> rounded;
  for (int64_t token = 0; token < args.tokens; ++token, in += 3 * h.heads * d, shared += args.down_columns) {
    std::fill_n(sums.begin(), h.rotary, T{0});
    for (int64_t head = 0; head < h.heads; ++head, q += d, kv += h.content + h.value) {
      const E* const of_query = in + head * d;
      UnpackContent(h, of_query, q);
      Interleave(h, of_query, of_query + half, q + h.content);
      const E* const of_key = in + (h.heads + head) * d;
      UnpackContent(h, of_key, kv);
      RunKernel(AccumulateArgs<E>{of_key, turned, sums.data()});
      RunKernel(AccumulateArgs<E>{of_key + half, turned, sums.data() + turned});
      std::copy_n(in + (2 * h.heads + head) * d, h.value, kv + h.content);
    }
    RunKernel(NarrowArgs<E>{sums.data(), h.rotary, rounded.data()});
    Interleave(h, rounded.data(), rounded.data() + turned, shared);
  }
}
TANDEM_CPU_KERNEL(UnpackLatentHeadsArgs)

}  // namespace tandem::ops::cpu
