// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/compare.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>

namespace tandem::ops::test {

Numbers::Numbers(uint64_t seed) : engine_(seed) {
  at::set_num_threads(1);
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::cout << (test == nullptr ? "" : test->name()) << ": seed " << seed << "\n";
}

at::Tensor Numbers::Normal(const std::vector<int64_t>& shape) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = normal(engine_);
  }
  return tensor;
}

at::Tensor Numbers::Integers(const std::vector<int64_t>& shape, int64_t bound) {
  at::Tensor tensor = at::empty(shape, at::kLong);
  std::uniform_int_distribution<int64_t> uniform(0, bound - 1);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<int64_t>()[i] = uniform(engine_);
  }
  return tensor;
}

at::Tensor FilledWithNan(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), dtype);
}

WorkMemory::WorkMemory(int64_t bytes, at::DeviceType device)
    : memory_(at::full({(bytes + 7) / 8}, std::numeric_limits<double>::quiet_NaN(),
                       at::TensorOptions(at::kDouble).device(device))) {}

WorkMemory::operator Workspace() const {
  return {.begin = memory_.data_ptr(), .bytes = static_cast<int64_t>(memory_.nbytes())};
}

double RelativeError(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) {
    return std::numeric_limits<double>::infinity();
  }
  if (actual.numel() == 0) {
    return 0;
  }
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor e = expected.detach().to(at::kDouble);
  const double difference = (a - e).abs().max().item<double>();
  const double scale = e.abs().max().item<double>();
  if (!std::isfinite(difference)) {
    return std::numeric_limits<double>::infinity();
  }
  return scale > 0 ? difference / scale : difference;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

at::Tensor Rounded(const at::Tensor& numbers, at::ScalarType dtype) {
  return numbers.to(dtype).to(at::kDouble);
}

testing::AssertionResult AgainstAutogradTest::Near(const at::Tensor& actual, const at::Tensor& expected,
                                                   double slack) const {
  const double error = RelativeError(actual, expected);
  const double most = slack * Tolerance(type_);
  return (error <= most ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "is off by " << error << ", more than " << most;
}

at::Tensor DocumentsOf(const std::vector<int64_t>& starts, int64_t sequences, int64_t length) {
  return starts.empty() ? at::Tensor() : at::tensor(starts, at::kLong).view({sequences, length});
}

std::vector<int64_t> ToVector(const at::Tensor& integers) {
  return {integers.const_data_ptr<int64_t>(), integers.const_data_ptr<int64_t>() + integers.numel()};
}

at::Tensor Leaf(const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(); }

}  // namespace tandem::ops::test
