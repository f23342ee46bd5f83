// SPDX-License-Identifier: Apache-2.0
#include "ops/qkv_bias.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class QkvBiasTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, QkvBiasTest, AllTypes());

TEST_P(QkvBiasTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(77);
  for (const auto& [tokens, query, key] :
       std::vector<std::array<int64_t, 3>>{{1, 2, 2}, {5, 24, 12}, {70, 60, 60}, {0, 6, 2}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << query << " and " << key << " columns");
    const at::Tensor qkv = Leaf(Rounded(numbers.Normal({tokens, query + 2 * key}), type));
    const at::Tensor grad = Rounded(numbers.Normal({tokens, query + 2 * key}), type);
    std::vector<at::Tensor> biases;
    std::vector<at::Tensor> given;
    std::vector<at::Tensor> sums;
    for (const int64_t columns : {query, key, key}) {
      biases.push_back(Leaf(Rounded(numbers.Normal({columns}), type)));
      given.push_back(biases.back().detach().to(type));
      sums.push_back(FilledWithNan({columns}, StatisticsOf(type)));
    }
    const at::Tensor expected = qkv + at::cat(biases);
    expected.backward(grad);

    at::Tensor biased = qkv.detach().to(type, /*non_blocking=*/false, /*copy=*/true);
    CpuOperations().QkvBias(given[0], given[1], given[2], biased)();
    EXPECT_LE(RelativeError(biased, expected), Tolerance(type));
    for (const bool add : {false, true}) {
      CpuOperations().QkvBiasBackward(grad.to(type), add, sums[0], sums[1], sums[2], {})();
      for (int i = 0; i < 3; ++i) {
        EXPECT_LE(RelativeError(sums[i], biases[i].grad() * (add ? 2 : 1)), Tolerance(type)) << i;
      }
    }
  }
}

TEST_P(QkvBiasTest, OneOfAllColumnsMatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(78);
  for (const auto& [tokens, columns] : std::vector<std::array<int64_t, 2>>{{1, 2}, {70, 60}, {0, 6}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << columns << " columns");
    const at::Tensor rows = Rounded(numbers.Normal({tokens, columns}), type);
    const at::Tensor grad = Rounded(numbers.Normal({tokens, columns}), type);
    const at::Tensor bias = Leaf(Rounded(numbers.Normal({columns}), type));
    const at::Tensor expected = rows + bias;
    expected.backward(grad);
    at::Tensor biased = rows.to(type, /*non_blocking=*/false, /*copy=*/true);
    CpuOperations().Bias(bias.detach().to(type), biased)();
    EXPECT_LE(RelativeError(biased, expected), Tolerance(type));
    at::Tensor sums = FilledWithNan({columns}, StatisticsOf(type));
    for (const bool add : {false, true}) {
      CpuOperations().BiasBackward(grad.to(type), add, sums, {})();
      EXPECT_LE(RelativeError(sums, bias.grad() * (add ? 2 : 1)), Tolerance(type));
    }
  }
}

}  // namespace
}  // namespace tandem::ops
