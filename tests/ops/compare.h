// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "ops/operations.h"
#include "ops/tensors.h"
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

// For tensors that these operations take.
inline at::Device TorchDeviceOf(const Operations& ops) {
  return ops.kind() == DeviceKind::kGpu ? at::kCUDA : at::kCPU;
}

// Work memory of an operation, full of NaN.
class WorkMemory {
 public:
  WorkMemory(int64_t bytes, at::DeviceType device);
  WorkMemory(const Operations& ops, int64_t bytes) : WorkMemory(bytes, TorchDeviceOf(ops).type()) {}
  operator Workspace() const;  // NOLINT: where one is taken

 private:
  at::Tensor memory_;
};

// What the types must reach against autograd in double on the same numbers (Rounded), as a share of the
// largest number (RelativeError). It is what a sum of 2^14 terms may lose, or three sums of 1,800 of which
// each reads the one before, as a gradient of attention does.
//
// What is computed in rounds by at most u = 2^-24 (float) or 2^-53 (double) of a number, as often up as down:
// with a standard deviation of u / sqrt(3). Of a sum of n terms the k-th addition rounds a partial sum that
// is sqrt(k) / sqrt(n) of the result where signs are random, k / n where they are one. All roundings together
// then have a standard deviation of 0.41 sqrt(n) u or 0.33 sqrt(n) u of the result. The largest error among
// 10^4 results is four of these; the largest result is three times a usual one where signs are random. So the
// share is 4/3 sqrt(n) u at most. (Higham and Mary, "A New Approach to Probabilistic Rounding Error
// Analysis", 2019, prove that errors grow so.) Sums that are longer in these tests are added up in lanes,
// which are shorter; of more results than 10^4 the largest error is larger, of 2 * 10^7 5.5 deviations, for
// which the GPU's slack has room. An exponential adds some u. On the CPU 14 u of float are reached, and 22 u
// of double, where autograd rounds as well; what loses more to cancellation says so, with a slack of its own.
//
// Of bfloat16 the result of float is rounded once more, to 8 digits: by at most 2^-8 of it.
inline double Tolerance(at::ScalarType dtype) {
  constexpr double kRoundings = 4.0 / 3 * 128;
  const double computed = kRoundings * (dtype == at::kDouble ? 0x1p-53 : 0x1p-24);
  return dtype == at::kBFloat16 ? computed + 0x1p-8 : computed;
}

// Of statistics, tables and work memory of operations on elements of that type.
inline at::ScalarType StatisticsOf(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// Numbers that the type holds exactly, in double.
at::Tensor Rounded(const at::Tensor& numbers, at::ScalarType dtype);

inline auto AllTypes() { return testing::Values(at::kFloat, at::kDouble, at::kBFloat16); }

// A copy that takes part in autograd.
at::Tensor Leaf(const at::Tensor& tensor);

// Of an operation on the CPU against autograd, with elements of each type.
class AgainstAutogradTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  // Normally distributed numbers that the type holds exactly, in double; and such that take part in autograd.
  at::Tensor Random(const std::vector<int64_t>& shape, double scale = 1) {
    return Rounded(numbers_.Normal(shape).mul(scale), type_);
  }
  at::Tensor RandomLeaf(const std::vector<int64_t>& shape, double scale = 1) {
    return Leaf(Random(shape, scale));
  }
  at::Tensor StatisticsLeaf(const std::vector<int64_t>& shape) {
    return Leaf(Rounded(numbers_.Normal(shape), StatisticsOf(type_)));
  }

  // A copy of the elements' type, without gradients.
  at::Tensor Typed(const at::Tensor& tensor) const {
    return tensor.detach().to(type_, /*non_blocking=*/false, /*copy=*/true);
  }
  at::Tensor TypedStatistics(const at::Tensor& tensor) const {
    return tensor.detach().to(StatisticsOf(type_));
  }
  at::Tensor Nan(const std::vector<int64_t>& shape) const { return FilledWithNan(shape, type_); }
  at::Tensor NanStatistics(const std::vector<int64_t>& shape) const {
    return FilledWithNan(shape, StatisticsOf(type_));
  }

  // Whether the result is off by at most `slack` times the type's Tolerance.
  testing::AssertionResult Near(const at::Tensor& actual, const at::Tensor& expected, double slack = 1) const;

  const at::ScalarType type_ = GetParam();
  const Operations& ops_ = CpuOperations();
  Numbers numbers_{61};
};

// The first row of each row's document as operations take it, [sequences, length]; undefined for none.
at::Tensor DocumentsOf(const std::vector<int64_t>& starts, int64_t sequences, int64_t length);

// Of int64, contiguous.
std::vector<int64_t> ToVector(const at::Tensor& integers);

}  // namespace tandem::ops::test
