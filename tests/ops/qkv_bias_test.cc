// SPDX-License-Identifier: Apache-2.0
#include "ops/qkv_bias.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class QkvBiasTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, QkvBiasTest, AllTypes());

TEST_P(QkvBiasTest, MatchesAutograd) {
  for (const auto& [tokens, query, key] :
       std::vector<std::array<int64_t, 3>>{{1, 2, 2}, {5, 24, 12}, {70, 60, 60}, {0, 6, 2}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << query << " and " << key << " columns");
    const at::Tensor qkv = RandomLeaf({tokens, query + 2 * key});
    const at::Tensor grad = Random({tokens, query + 2 * key});
    std::vector<at::Tensor> biases;
    std::vector<at::Tensor> given;
    std::vector<at::Tensor> sums;
    for (const int64_t columns : {query, key, key}) {
      biases.push_back(RandomLeaf({columns}));
      given.push_back(biases.back().detach().to(type_));
      sums.push_back(NanStatistics({columns}));
    }
    const at::Tensor expected = qkv + at::cat(biases);
    expected.backward(grad);

    at::Tensor biased = Typed(qkv);
    ops_.QkvBias(given[0], given[1], given[2], biased)();
    EXPECT_TRUE(Near(biased, expected));
    for (const bool add : {false, true}) {
      ops_.QkvBiasBackward(grad.to(type_), add, sums[0], sums[1], sums[2], {})();
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(Near(sums[i], biases[i].grad() * (add ? 2 : 1))) << i;
      }
    }
  }
}

// Without both there is one bias for all columns, and the other one would be ignored.
TEST_P(QkvBiasTest, KeysAndValuesHaveABiasOnlyTogether) {
  const at::Tensor rows = Nan({3, 6});
  const at::Tensor bias = Nan({6});
  const at::Tensor part = Nan({2});
  EXPECT_THROW(ops_.QkvBias(bias, {}, part, rows), std::invalid_argument);
  EXPECT_THROW(ops_.QkvBias(part, part, {}, rows), std::invalid_argument);
  const at::Tensor sums = NanStatistics({6});
  const at::Tensor some = NanStatistics({2});
  EXPECT_THROW(ops_.QkvBiasBackward(rows, /*add=*/false, sums, {}, some, {}), std::invalid_argument);
  EXPECT_THROW(ops_.QkvBiasBackward(rows, /*add=*/false, some, some, {}, {}), std::invalid_argument);
}

TEST_P(QkvBiasTest, OneOfAllColumnsMatchesAutograd) {
  for (const auto& [tokens, columns] : std::vector<std::array<int64_t, 2>>{{1, 2}, {70, 60}, {0, 6}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << columns << " columns");
    const at::Tensor rows = Random({tokens, columns});
    const at::Tensor grad = Random({tokens, columns});
    const at::Tensor bias = RandomLeaf({columns});
    const at::Tensor expected = rows + bias;
    expected.backward(grad);
    at::Tensor biased = Typed(rows);
    ops_.Bias(Typed(bias), biased)();
    EXPECT_TRUE(Near(biased, expected));
    at::Tensor sums = NanStatistics({columns});
    for (const bool add : {false, true}) {
      ops_.BiasBackward(grad.to(type_), add, sums, {})();
      EXPECT_TRUE(Near(sums, bias.grad() * (add ? 2 : 1)));
    }
  }
}

}  // namespace
}  // namespace tandem::ops
