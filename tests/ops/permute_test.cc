// SPDX-License-Identifier: Apache-2.0
#include "ops/permute.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

at::Tensor Unset(const std::vector<int64_t>& shape) { return at::zeros(shape, at::kLong).fill_(-1); }

TEST(PlanRowsTest, RowsAreOrderedByExpertThenToken) {
  const at::Tensor chosen = at::tensor({1, 3, 0, 1, 1, 3}, at::kLong).view({3, 2});
  at::Tensor counts = Unset({5});
  at::Tensor row_of = Unset({6});
  CpuOperations().PlanRows(chosen, /*chunk=*/0, counts, row_of, {})();
  EXPECT_EQ(ToVector(counts), (std::vector<int64_t>{1, 3, 0, 2, 0}));  // two experts have none
  EXPECT_EQ(ToVector(row_of), (std::vector<int64_t>{1, 4, 0, 2, 3, 5}));
}

TEST(PlanRowsTest, EveryTokenMayChooseOneExpert) {
  at::Tensor counts = Unset({1});
  at::Tensor row_of = Unset({4});
  CpuOperations().PlanRows(at::zeros({4, 1}, at::kLong), /*chunk=*/0, counts, row_of, {})();
  EXPECT_EQ(ToVector(counts), (std::vector<int64_t>{4}));
  EXPECT_EQ(ToVector(row_of), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(PlanRowsTest, WithChunksEveryExpertHasEqualRows) {
  const at::Tensor chosen = at::tensor({1, 3, -1, 1, 1, 3}, at::kLong).view({3, 2});
  at::Tensor counts = Unset({5});
  at::Tensor row_of = Unset({6});
  CpuOperations().PlanRows(chosen, /*chunk=*/3, counts, row_of, {})();
  EXPECT_EQ(ToVector(counts), (std::vector<int64_t>{3, 3, 3, 3, 3}));
  EXPECT_EQ(ToVector(row_of), (std::vector<int64_t>{3, 9, -1, 4, 5, 10}));
}

TEST(PlanRowsTest, RefusesMoreSlotsThanAChunkHolds) {
  at::Tensor counts = Unset({2});
  at::Tensor row_of = Unset({3});
  EXPECT_THROW(CpuOperations().PlanRows(at::zeros({3, 1}, at::kLong), /*chunk=*/2, counts, row_of, {})(),
               std::out_of_range);
}

TEST(PlanRowsTest, RefusesAnExpertThatIsNotThere) {
  at::Tensor counts = Unset({3});
  at::Tensor row_of = Unset({1});
  EXPECT_THROW(
      CpuOperations().PlanRows(at::zeros({1, 1}, at::kLong).fill_(3), /*chunk=*/0, counts, row_of, {})(),
      std::out_of_range);
}

class PermuteTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, PermuteTest, AllTypes());

TEST_P(PermuteTest, MatchesAutogradBothWays) {
  for (const auto& [tokens, slots, columns] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {9, 1, 5}, {7, 3, 17}, {5, 8, 1100}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << slots << " slots, " << columns << " wide");
    // Each token's experts ascend: random ones of 16, one of each pair.
    at::Tensor chosen = numbers_.Integers({tokens, slots}, 2);
    for (int64_t slot = 0; slot < slots; ++slot) {
      chosen.select(1, slot) += 2 * slot;
    }
    at::Tensor counts = Unset({16});
    at::Tensor row_of = Unset({tokens * slots});
    ops_.PlanRows(chosen, /*chunk=*/0, counts, row_of, {})();

    const at::Tensor x = RandomLeaf({tokens, columns});
    const at::Tensor grad_rows = Random({tokens * slots, columns});
    const at::Tensor slot_of = row_of.argsort();
    const at::Tensor expected = x.repeat_interleave(slots, 0).index_select(0, slot_of);
    expected.backward(grad_rows);

    const at::Tensor x_t = Typed(x);
    at::Tensor rows = Nan({tokens * slots, columns});
    ops_.Permute(x_t, row_of, /*first=*/0, rows)();
    EXPECT_TRUE(SameBits(rows, Typed(expected)));
    at::Tensor grad_x = Nan({tokens, columns});
    ops_.Unpermute(grad_rows.to(type_), row_of, /*first=*/0, /*add=*/false, grad_x)();
    EXPECT_TRUE(Near(grad_x, x.grad()));
    ops_.Unpermute(grad_rows.to(type_), row_of, /*first=*/0, /*add=*/true, grad_x)();
    EXPECT_TRUE(Near(grad_x, x.grad() * 2, 1.5));  // rounded twice
  }
}

TEST_P(PermuteTest, ProbabilitiesComeBackFromTheirSlotsRows) {
  const at::Tensor chosen = at::tensor({1, 2, 0, 2, 0, 1}, at::kLong).view({3, 2});
  at::Tensor counts = Unset({3});
  at::Tensor row_of = Unset({6});
  ops_.PlanRows(chosen, /*chunk=*/0, counts, row_of, {})();
  const at::Tensor probabilities = Numbers(74).Normal({6, 1}).to(type_);
  at::Tensor rows = Nan({6, 1});
  at::Tensor back = Nan({6, 1});
  ops_.Permute(probabilities, row_of, /*first=*/0, rows)();
  EXPECT_FALSE(SameBits(rows, probabilities));
  ops_.Unpermute(rows, row_of, /*first=*/0, /*add=*/false, back)();
  EXPECT_TRUE(SameBits(back, probabilities));
}

// The order of the additions decides the bits.
TEST(UnpermuteTest, AddsInAscendingExpert) {
  const at::Tensor chosen = at::tensor({0, 1, 2}, at::kLong).view({1, 3});
  at::Tensor counts = Unset({3});
  at::Tensor row_of = Unset({3});
  CpuOperations().PlanRows(chosen, /*chunk=*/0, counts, row_of, {})();
  const at::Tensor rows = at::tensor({1e8, 1.0, -1e8}, at::kDouble).to(at::kFloat).view({3, 1});
  at::Tensor sum = FilledWithNan({1, 1}, at::kFloat);
  CpuOperations().Unpermute(rows, row_of, /*first=*/0, /*add=*/false, sum)();
  EXPECT_EQ(sum.item<float>(), (1e8F + 1.0F) - 1e8F);
}

TEST_P(PermuteTest, RefusesSizesThatDoNotFit) {
  at::Tensor rows = Nan({5, 4});
  EXPECT_THROW(ops_.Permute(Nan({2, 4}), Unset({5}), /*first=*/0, rows)(), std::invalid_argument);
  EXPECT_THROW(ops_.Permute(Nan({5, 3}), Unset({5}), /*first=*/0, rows)(), std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
