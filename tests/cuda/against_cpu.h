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

// Every operation on the GPU against the CPU's in double, which tests/ops compares with autograd, on the same
// numbers; and against itself.
class AgainstCpuTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  using Tensors = std::vector<at::Tensor>;

  at::Tensor Normal(const std::vector<int64_t>& shape) { return numbers_.Normal(shape).to(GetParam()); }
  at::Tensor NanOf(const std::vector<int64_t>& shape) { return FilledWithNan(shape, GetParam()); }
  // Of statistics: float where elements are bfloat16.
  at::Tensor NormalStatistics(const std::vector<int64_t>& shape) {
    return numbers_.Normal(shape).to(StatisticsOf(GetParam()));
  }
  at::Tensor NanStatistics(const std::vector<int64_t>& shape) {
    return FilledWithNan(shape, StatisticsOf(GetParam()));
  }

  // run(operations, in, out): `out` is read and written. Compares `out` after both, numbers to `slack` times
  // Tolerance and integers exactly; and `repeats` runs on the GPU with the first of them. The slack is 2
  // where both devices may be off by a tolerance, as they are in double; elsewhere it allows for sums that
  // are four times as long. More is said where it is given. That of statistics may be another.
  void Compare(const Tensors& in, const Tensors& out,
               const std::function<void(const Operations&, const Tensors&, Tensors&)>& run, double slack = 2,
               int repeats = 2, std::optional<double> statistics_slack = std::nullopt);

  Numbers numbers_{20251};
};

}  // namespace tandem::ops::test
