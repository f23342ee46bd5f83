// SPDX-License-Identifier: Apache-2.0
// What operations do where there is nothing to compute: nothing but zeros in what they write.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "ops/attention_work.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/sparse_operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class NoRowsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  static at::Tensor Of(const std::vector<int64_t>& shape) { return FilledWithNan(shape, GetParam()); }
  static at::Tensor Statistics(const std::vector<int64_t>& shape) {
    return FilledWithNan(shape, StatisticsOf(GetParam()));
  }
  static bool IsZero(const at::Tensor& tensor) { return tensor.eq(0).all().item<bool>(); }

  const Operations& ops_ = CpuOperations();
  const WorkMemory work_{kTileBytes, at::kCPU};
};
INSTANTIATE_TEST_SUITE_P(Types, NoRowsTest, AllTypes());

TEST_P(NoRowsTest, ProductsAreEmptyAndTheWeightsGradientIsZero) {
  const at::Tensor x = Of({0, 6});
  const at::Tensor weight = Of({5, 6});
  at::Tensor y = Of({0, 5});
  at::Tensor grad_x = Of({0, 6});
  at::Tensor grad_weight = Of({5, 6});
  ops_.Linear(x, weight, /*residual=*/{}, y, work_);
  ops_.LinearBackwardInput(y, weight, /*add=*/false, grad_x, work_);
  ops_.LinearBackwardWeight(y, x, /*add=*/false, grad_weight, work_);
  EXPECT_TRUE(IsZero(grad_weight));
  ops_.LinearBackwardWeight(y, x, /*add=*/true, grad_weight.fill_(3), work_);
  EXPECT_TRUE(grad_weight.eq(3).all().item<bool>());
}

TEST_P(NoRowsTest, RowsAreEmptyAndTheNormsGradientIsZero) {
  const at::Tensor weight = Of({7});
  at::Tensor x = Of({0, 7});
  at::Tensor grad_weight = Statistics({7});
  ops_.RmsNorm(x, weight, 1e-5, x);
  ops_.RmsNormBackward(x, x, weight, 1e-5, /*residual=*/{}, false, x, false, grad_weight, work_);
  EXPECT_TRUE(IsZero(grad_weight));
  at::Tensor cosines = Statistics({3, 2});
  at::Tensor sines = Statistics({3, 2});
  RopeTables(10000, cosines, sines);
  at::Tensor heads = Of({0, 8});
  ops_.Rope(cosines, sines, 2, heads);
  ops_.RopeBackward(cosines, sines, 2, heads);
  at::Tensor activated = Of({0, 4});
  ops_.SwiGlu(heads, activated);
  ops_.SwiGluBackward(heads, activated, heads, activated);
}

TEST_P(NoRowsTest, TokensAreEmptyAndTheTablesGradientIsZero) {
  const at::Tensor tokens = Numbers(71).Integers({0, 4}, 9);
  const at::Tensor table = Of({9, 5});
  at::Tensor output = Of({0, 5});
  at::Tensor grad_table = Of({9, 5});
  ops_.Embedding(tokens, table, output);
  ops_.EmbeddingBackward(tokens, output, /*add=*/false, grad_table, work_);
  EXPECT_TRUE(IsZero(grad_table));
}

TEST_P(NoRowsTest, NoSequenceHasNoAttention) {
  const AttentionShape shape{0, 5, 4, 2, 6};
  const at::Tensor qkv = Of({0, 48});
  at::Tensor context = Of({0, 24});
  at::Tensor lse = Statistics({0, 4, 5});
  at::Tensor grad_qkv = Of({0, 48});
  const int64_t bytes = AttentionBackwardWorkBytes(DeviceKind::kCpu, {1, 5, 4, 2, 6}, qkv.element_size());
  const WorkMemory work(bytes, at::kCPU);
  ops_.Attention(shape, qkv, /*documents=*/{}, context, lse, work);
  ops_.AttentionBackward(shape, qkv, /*documents=*/{}, context, lse, context, grad_qkv, work);
}

TEST_P(NoRowsTest, TheMeanLossOfNoTokensIsNoNumber) {
  const at::Tensor targets = Numbers(72).Integers({0, 4}, 9);
  at::Tensor logits = Of({0, 9});
  at::Tensor lse = Statistics({0});
  at::Tensor loss = FilledWithNan({1}, at::kDouble).fill_(0);
  ops_.CrossEntropy(logits, targets, lse, loss, logits);
  EXPECT_TRUE(loss.isnan().item<bool>());
}

TEST_P(NoRowsTest, NoTokenHasAnExpertAndExpertsGradientsAreZero) {
  const SparseOperations& sparse = ops_.sparse();
  const RouterConfig config{.experts = 4, .top_k = 2};
  const auto integers = [](const std::vector<int64_t>& shape) { return at::full(shape, -7, at::kLong); };
  at::Tensor logits = Statistics({0, 4});
  at::Tensor chosen = integers({0, 2});
  at::Tensor probabilities = Statistics({0, 2});
  sparse.Route(config, logits, /*bias=*/{}, chosen, probabilities);
  sparse.RouteBackward(config, logits, chosen, chosen, probabilities, logits);
  at::Tensor tokens = FilledWithNan({4}, at::kDouble);
  at::Tensor dropped = FilledWithNan({1}, at::kDouble);
  sparse.CountTokens(chosen, tokens, dropped);
  EXPECT_TRUE(IsZero(tokens) && IsZero(dropped));
  at::Tensor counts = integers({4});
  at::Tensor row_of = integers({0});
  at::Tensor begins = integers({5});
  sparse.PlanRows(chosen, /*chunk=*/0, counts, row_of, work_);
  EXPECT_TRUE(IsZero(counts));
  EXPECT_FALSE(sparse.PlanWindow(counts, 0, /*rows=*/3, begins));
  EXPECT_TRUE(IsZero(begins));
  at::Tensor hidden = Of({0, 6});
  at::Tensor rows = Of({3, 6}).fill_(5);
  sparse.Permute(hidden, row_of, 0, rows);
  sparse.Unpermute(rows, row_of, 0, /*add=*/false, hidden);
  EXPECT_TRUE(rows.eq(5).all().item<bool>()) << "rows that no token has are left alone";
  const at::Tensor weight = Of({4 * 2, 6});
  at::Tensor grad_weight = Of({4 * 2, 6});
  at::Tensor y = Of({3, 2}).fill_(5);
  sparse.GroupedLinear(begins, rows, weight, y, work_);
  EXPECT_TRUE(y.eq(5).all().item<bool>());
  sparse.GroupedLinearBackwardInput(begins, y, weight, rows, work_);
  EXPECT_TRUE(rows.eq(5).all().item<bool>());
  sparse.GroupedLinearBackwardWeight(begins, y, rows, /*add=*/false, grad_weight, work_);
  EXPECT_TRUE(IsZero(grad_weight));
}

}  // namespace
}  // namespace tandem::ops
