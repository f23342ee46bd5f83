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

// Returns a tensor with NaN in every element, for memory that a test expects to be written.
at::Tensor FilledWithNan(const std::vector<int64_t>& shape, at::ScalarType dtype);

// max |actual - expected| / max |expected|, in double; infinite if shapes differ or a number is not
// finite.
double RelativeError(const at::Tensor& actual, const at::Tensor& expected);

// Whether both have the same shape and bytes.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// The device of tensors that can be passed to `ops`.
inline at::Device TorchDeviceOf(const Operations& ops) {
  return ops.kind() == DeviceKind::kGpu ? at::kCUDA : at::kCPU;
}

// Work memory of an operation, full of NaN.
class WorkMemory {
 public:
  WorkMemory(int64_t bytes, at::DeviceType device);
  WorkMemory(const Operations& ops, int64_t bytes) : WorkMemory(bytes, TorchDeviceOf(ops).type()) {}
  operator Workspace() const;  // NOLINT: implicit, so that operations accept it

 private:
  at::Tensor memory_;
};

// The largest RelativeError that an element type may have against autograd in double on the same numbers
// (Rounded). A sum of 2^14 terms may lose as much, or three sums of 1,800 terms, each of which reads the one
// before, as in a gradient of attention.
//
// An operation in float or double rounds by at most u = 2^-24 or 2^-53 of a number, as often up as down: with
// a standard deviation of u / sqrt(3). In a sum of n terms the k-th addition rounds a partial sum that is
// sqrt(k) / sqrt(n) of the result if signs are random, and k / n if they are equal. All roundings together
// then have a standard deviation of 0.41 sqrt(n) u or 0.33 sqrt(n) u of the result. The largest error among
// 10^4 results is four of these; the largest result is three times a usual one where signs are random. So the
// share is 4/3 sqrt(n) u at most. (Higham and Mary, "A New Approach to Probabilistic Rounding Error
// Analysis", 2019, prove that errors grow so.) Sums that are longer in these tests are added up in lanes,
// which are shorter; of more results than 10^4 the largest error is larger, of 2 * 10^7 5.5 deviations, for
// which the GPU's slack has room. An exponential adds some u. On the CPU the errors reach 14 u in float, and
// 22 u in double, because autograd rounds as well. A test that loses more to cancellation has a slack of its
// own.
//
// A bfloat16 result is a float result, rounded once more to 8 digits: by at most 2^-8 of it.
inline double Tolerance(at::ScalarType dtype) {
  constexpr double kRoundings = 4.0 / 3 * 128;
  const double computed = kRoundings * (dtype == at::kDouble ? 0x1p-53 : 0x1p-24);
  return dtype == at::kBFloat16 ? computed + 0x1p-8 : computed;
}

// The type of statistics, tables and work memory of operations on elements of `dtype`.
inline at::ScalarType StatisticsOf(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// The numbers rounded to `dtype`, in double.
at::Tensor Rounded(const at::Tensor& numbers, at::ScalarType dtype);

inline auto AllTypes() { return testing::Values(at::kFloat, at::kDouble, at::kBFloat16); }

// Returns a copy that requires a gradient.
at::Tensor Leaf(const at::Tensor& tensor);

// Tests of an operation on the CPU against autograd, with elements of each type.
class AgainstAutogradTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  // Normally distributed numbers in double that the type holds exactly. A leaf requires a gradient.
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

// Requires contiguous int64.
std::vector<int64_t> ToVector(const at::Tensor& integers);

}  // namespace tandem::ops::test
