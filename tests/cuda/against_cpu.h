// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops::test {

// Compares an operation on the GPU with the CPU's in double on the same numbers, and with itself. tests/ops
// compares the CPU's with autograd.
class AgainstCpuTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  using Tensors = std::vector<at::Tensor>;

  at::Tensor Normal(const std::vector<int64_t>& shape) { return numbers_.Normal(shape).to(GetParam()); }
  at::Tensor NanOf(const std::vector<int64_t>& shape) { return FilledWithNan(shape, GetParam()); }
  // Statistics are float if elements are bfloat16.
  at::Tensor NormalStatistics(const std::vector<int64_t>& shape) {
    return numbers_.Normal(shape).to(StatisticsOf(GetParam()));
  }
  at::Tensor NanStatistics(const std::vector<int64_t>& shape) {
    return FilledWithNan(shape, StatisticsOf(GetParam()));
  }

  // run(operations, in, out): `out` is read and written. Compares `out` of both devices, numbers to `slack`
  // times Tolerance and integers exactly, and `repeats` runs on the GPU with the first of them. The default
  // of 2 allows an error of one tolerance on each device in double, and sums four times as long in other
  // types. Tests that need more say why. Statistics may have another slack.
  void Compare(const Tensors& in, const Tensors& out,
               const std::function<void(const Operations&, const Tensors&, Tensors&)>& run, double slack = 2,
               int repeats = 2, std::optional<double> statistics_slack = std::nullopt);

  Numbers numbers_{20251};
};

}  // namespace tandem::ops::test
