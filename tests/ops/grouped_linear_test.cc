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

class GroupedLinearTest : public AgainstAutogradTest {
 protected:
  const WorkMemory work_{kTileBytes, at::kCPU};
};
INSTANTIATE_TEST_SUITE_P(Types, GroupedLinearTest, AllTypes());

TEST_P(GroupedLinearTest, MatchesAutogradAlsoOfExpertsWithoutRows) {
  const int64_t inputs = 24;
  const int64_t outputs = 10;
  for (const std::vector<int64_t>& counts :
       std::vector<std::vector<int64_t>>{{7}, {3, 0, 5, 1}, {0, 0, 9}, {0, 0}}) {
    SCOPED_TRACE(testing::PrintToString(counts));
    const auto experts = static_cast<int64_t>(counts.size());
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const at::Tensor x = RandomLeaf({rows, inputs});
    const at::Tensor weight = RandomLeaf({experts * outputs, inputs});
    const at::Tensor grad_y = Random({rows, outputs});
    std::vector<at::Tensor> products;
    int64_t row = 0;
    for (int64_t e = 0; e < experts; ++e) {
      products.push_back(at::mm(x.narrow(0, row, counts[e]), weight.narrow(0, e * outputs, outputs).t()));
      row += counts[e];
    }
    const at::Tensor expected = at::cat(products);
    expected.backward(grad_y);

    const at::Tensor begins = BeginsOf(counts);
    const at::Tensor x_t = Typed(x);
    const at::Tensor weight_t = Typed(weight);
    const at::Tensor grad_y_t = grad_y.to(type_);
    at::Tensor y = Nan({rows, outputs});
    at::Tensor grad_x = Nan({rows, inputs});
    at::Tensor grad_weight = Nan({experts * outputs, inputs});
    ops_.GroupedLinear(begins, x_t, weight_t, y, work_)();
    ops_.GroupedLinearBackwardInput(begins, grad_y_t, weight_t, grad_x, work_)();
    ops_.GroupedLinearBackwardWeight(begins, grad_y_t, x_t, /*add=*/false, grad_weight, work_)();
    if (rows > 0) {
      EXPECT_TRUE(Near(y, expected));
      EXPECT_TRUE(Near(grad_x, x.grad()));
    }
    EXPECT_TRUE(Near(grad_weight, weight.grad()));
    for (int64_t e = 0; e < experts; ++e) {
      if (counts[e] == 0) {
        EXPECT_TRUE((grad_weight.narrow(0, e * outputs, outputs) == 0).all().item<bool>());
      }
    }
    ops_.GroupedLinearBackwardWeight(begins, grad_y_t, x_t, /*add=*/true, grad_weight, work_)();
    EXPECT_TRUE(Near(grad_weight, weight.grad() * 2, 1.5));  // rounded twice
  }
}

TEST_P(GroupedLinearTest, RefusesBeginsThatAreNotOfTheRows) {
  const at::Tensor x = Nan({3, 4});
  const at::Tensor weight = Nan({4, 4});
  at::Tensor y = Nan({3, 2});
  for (const std::vector<int64_t>& begins :
       std::vector<std::vector<int64_t>>{{0, 2, 4}, {0, 3, 2}, {1, 2, 3}, {0, 1, 2, 3}}) {
    EXPECT_THROW(ops_.GroupedLinear(at::tensor(begins, at::kLong), x, weight, y, work_)(),
                 std::invalid_argument)
        << testing::PrintToString(begins);
  }
}

TEST_P(GroupedLinearTest, LeavesRowsBehindTheLastExpertsAlone) {
  const at::Tensor x = at::ones({3, 4}, type_);
  const at::Tensor weight = at::ones({4, 4}, type_);
  at::Tensor y = at::full({3, 2}, 7, type_);
  ops_.GroupedLinear(BeginsOf({1, 1}), x, weight, y, work_)();
  EXPECT_TRUE(y.narrow(0, 0, 2).eq(4).all().item<bool>());
  EXPECT_TRUE(y.narrow(0, 2, 1).eq(7).all().item<bool>());
}

}  // namespace
}  // namespace tandem::ops
