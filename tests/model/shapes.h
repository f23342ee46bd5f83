// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "model/config.h"
#include "tests/model/bound_decoder.h"

namespace tandem::model::test {

inline constexpr uint64_t kSeed = 91;

// A decoder and its microbatch.
struct Shape {
  const char* name;
  DecoderConfig config;
  BatchShape batch;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);

// Every kind of layer, sizes that are odd, one token, no layers, logits in chunks, packed documents.
const std::vector<Shape>& Shapes();

DecoderConfig Config(int64_t hidden, int64_t inner, int64_t layers, int64_t heads, int64_t kv_heads,
                     int64_t head_dim, int64_t vocabulary, bool tied);

// bf16 with either transport, and units of a type of their own.
const std::vector<Precision>& ReducedPrecisions();

// The batch: tokens, and documents of some five tokens where they are packed.
at::Tensor RandomTokens(const Shape& shape, uint64_t seed);

// Expects actual = expected up to `tolerance` of its norm, or nothing where nothing is expected.
void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what);

bool SameBits(const at::Tensor& a, const at::Tensor& b);

}  // namespace tandem::model::test
