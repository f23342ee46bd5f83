// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "ops/linear_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

at::Tensor BeginsOf(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins = {0};
  for (const int64_t rows : counts) {
    begins.push_back(begins.back() + rows);
  }
  return at::tensor(begins, at::kLong);
}

class GroupedLinearTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  Workspace work() {
    return {.begin = memory_.mutable_data_ptr(), .bytes = static_cast<int64_t>(memory_.nbytes())};
  }

 private:
  const at::Tensor memory_ = FilledWithNan({kTileBytes / 4}, at::kFloat);
};
INSTANTIATE_TEST_SUITE_P(Types, GroupedLinearTest, AllTypes());

TEST_P(GroupedLinearTest, MatchesAutogradAlsoOfExpertsWithoutRows) {
  const at::ScalarType type = GetParam();
  Numbers numbers(75);
  const int64_t inputs = 24;
  const int64_t outputs = 10;
  for (const std::vector<int64_t>& counts :
       std::vector<std::vector<int64_t>>{{7}, {3, 0, 5, 1}, {0, 0, 9}, {0, 0}}) {
    SCOPED_TRACE(testing::PrintToString(counts));
    const auto experts = static_cast<int64_t>(counts.size());
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const at::Tensor x = Leaf(Rounded(numbers.Normal({rows, inputs}), type));
    const at::Tensor weight = Leaf(Rounded(numbers.Normal({experts * outputs, inputs}), type));
    const at::Tensor grad_y = Rounded(numbers.Normal({rows, outputs}), type);
    std::vector<at::Tensor> products;
    int64_t row = 0;
    for (int64_t e = 0; e < experts; ++e) {
      products.push_back(at::mm(x.narrow(0, row, counts[e]), weight.narrow(0, e * outputs, outputs).t()));
      row += counts[e];
    }
    const at::Tensor expected = at::cat(products);
    expected.backward(grad_y);

    const at::Tensor begins = BeginsOf(counts);
    const at::Tensor x_t = x.detach().to(type);
    const at::Tensor weight_t = weight.detach().to(type);
    const at::Tensor grad_y_t = grad_y.to(type);
    at::Tensor y = FilledWithNan({rows, outputs}, type);
    at::Tensor grad_x = FilledWithNan({rows, inputs}, type);
    at::Tensor grad_weight = FilledWithNan({experts * outputs, inputs}, type);
    CpuOperations().sparse().GroupedLinear(begins, x_t, weight_t, y, work())();
    CpuOperations().sparse().GroupedLinearBackwardInput(begins, grad_y_t, weight_t, grad_x, work())();
    CpuOperations().sparse().GroupedLinearBackwardWeight(begins, grad_y_t, x_t, /*add=*/false, grad_weight,
                                                         work())();
    if (rows > 0) {
      EXPECT_LE(RelativeError(y, expected), Tolerance(type));
      EXPECT_LE(RelativeError(grad_x, x.grad()), Tolerance(type));
    }
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(type));
    for (int64_t e = 0; e < experts; ++e) {
      if (counts[e] == 0) {
        EXPECT_TRUE((grad_weight.narrow(0, e * outputs, outputs) == 0).all().item<bool>());
      }
    }
    CpuOperations().sparse().GroupedLinearBackwardWeight(begins, grad_y_t, x_t, /*add=*/true, grad_weight,
                                                         work())();
    EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), 1.5 * Tolerance(type));  // rounded twice
  }
}

TEST_P(GroupedLinearTest, RefusesBeginsThatAreNotOfTheRows) {
  const at::Tensor x = FilledWithNan({3, 4}, GetParam());
  const at::Tensor weight = FilledWithNan({4, 4}, GetParam());
  at::Tensor y = FilledWithNan({3, 2}, GetParam());
  for (const std::vector<int64_t>& begins :
       std::vector<std::vector<int64_t>>{{0, 2, 4}, {0, 3, 2}, {1, 2, 3}, {0, 1, 2, 3}}) {
    EXPECT_THROW(
        CpuOperations().sparse().GroupedLinear(at::tensor(begins, at::kLong), x, weight, y, work())(),
        std::invalid_argument)
        << testing::PrintToString(begins);
  }
}

TEST_P(GroupedLinearTest, LeavesRowsBehindTheLastExpertsAlone) {
  const at::Tensor x = at::ones({3, 4}, GetParam());
  const at::Tensor weight = at::ones({4, 4}, GetParam());
  at::Tensor y = at::full({3, 2}, 7, GetParam());
  CpuOperations().sparse().GroupedLinear(BeginsOf({1, 1}), x, weight, y, work())();
  EXPECT_TRUE(y.narrow(0, 0, 2).eq(4).all().item<bool>());
  EXPECT_TRUE(y.narrow(0, 2, 1).eq(7).all().item<bool>());
}

}  // namespace
}  // namespace tandem::ops
