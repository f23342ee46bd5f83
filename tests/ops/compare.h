// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "ops/workspace.h"

namespace tandem::ops::test {

// Reproducible random tensors; prints its seed. From its construction on LibTorch uses one thread, as on a
// stream's thread.
class Numbers {
 public:
  explicit Numbers(uint64_t seed);

  // Normally distributed, double.
  at::Tensor Normal(const std::vector<int64_t>& shape);

  // int64 in [0, bound).
  at::Tensor Integers(const std::vector<int64_t>& shape, int64_t bound);

 private:
  std::mt19937_64 engine_;
};

// Memory that nothing has written yet: NaN in every element.
at::Tensor FilledWithNan(const std::vector<int64_t>& shape, at::ScalarType dtype);

// max |actual - expected| / max |expected|, in double; infinite where shapes differ or a number is not
// finite.
double RelativeError(const at::Tensor& actual, const at::Tensor& expected);

// Same shape, same bytes.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// Work memory of an operation, full of NaN.
class WorkMemory {
 public:
  WorkMemory(int64_t bytes, at::DeviceType device);
  operator Workspace() const;  // NOLINT: where one is taken

 private:
  at::Tensor memory_;
};

// What the types must reach against autograd in double on the same numbers (Rounded). Of bfloat16: what
// float reaches, and one rounding of the result to 8 digits, by at most 2^-8 of it.
inline double Tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kBFloat16 ? 1.0 / 256 + 1e-5 : 1e-5;
}

// Of statistics, tables and work memory of operations on elements of that type.
inline at::ScalarType StatisticsOf(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// Numbers that the type holds exactly, in double.
at::Tensor Rounded(const at::Tensor& numbers, at::ScalarType dtype);

inline auto AllTypes() { return testing::Values(at::kFloat, at::kDouble, at::kBFloat16); }

// Of int64, contiguous.
std::vector<int64_t> ToVector(const at::Tensor& integers);

// A copy that takes part in autograd.
at::Tensor Leaf(const at::Tensor& tensor);

}  // namespace tandem::ops::test
