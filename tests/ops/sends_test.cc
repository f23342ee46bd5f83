// SPDX-License-Identifier: Apache-2.0
#include "ops/sends.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/operations.h"
#include "ops/permute.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

at::Tensor Unset(const std::vector<int64_t>& shape) { return at::zeros(shape, at::kLong).fill_(-7); }

// Two experts a rank, three ranks: token 0 has both of rank 0, token 1 one of rank 0 and one of rank 2, token
// 2 one of rank 2 alone, because another was dropped.
at::Tensor Chosen() { return at::tensor({0, 1, 1, 5, -1, 4}, at::kLong).view({3, 2}); }

TEST(SendsTest, ATokenGoesOnceToItsExpertsRanks) {
  at::Tensor counts = Unset({3});
  at::Tensor place = Unset({3, 3});
  CpuOperations().PlanSends(Chosen(), 2, /*chunk=*/10, counts, place, {})();
  EXPECT_EQ(ToVector(counts), (std::vector<int64_t>{2, 0, 2}));
  EXPECT_EQ(ToVector(place), (std::vector<int64_t>{0, -1, -1, 1, -1, 20, -1, -1, 21}));
  CpuOperations().PlanSends(Chosen(), 2, /*chunk=*/0, counts, place, {})();
  EXPECT_EQ(ToVector(place), (std::vector<int64_t>{0, -1, -1, 1, -1, 2, -1, -1, 3}));
}

TEST(SendsTest, RowsHaveTheirRanksExpertsAndProbabilities) {
  at::Tensor counts = Unset({3});
  at::Tensor place = Unset({3, 3});
  CpuOperations().PlanSends(Chosen(), 2, /*chunk=*/0, counts, place, {})();
  const at::Tensor probabilities = at::tensor({0.5, 0.25, 0.125, 2.0, 4.0, 8.0}, at::kDouble).view({3, 2});
  at::Tensor slots = Unset({5, 2});
  at::Tensor sent = FilledWithNan({5, 2}, at::kDouble);
  CpuOperations().SendSlots(Chosen(), probabilities, place, 2, slots, sent)();
  EXPECT_EQ(ToVector(slots), (std::vector<int64_t>{0, 1, 1, -1, 1, -1, 0, -1, -1, -1}));
  EXPECT_TRUE(SameBits(
      sent, at::tensor({0.5, 0.25, 0.125, 0.0, 2.0, 0.0, 8.0, 0.0, 0.0, 0.0}, at::kDouble).view({5, 2})));
  at::Tensor back = FilledWithNan({3, 2}, at::kDouble);
  CpuOperations().CollectSlots(sent, Chosen(), place, 2, /*add=*/false, back)();
  EXPECT_TRUE(SameBits(back, at::tensor({0.5, 0.25, 0.125, 2.0, 0.0, 8.0}, at::kDouble).view({3, 2})));
  CpuOperations().CollectSlots(sent, Chosen(), place, 2, /*add=*/true, back)();
  EXPECT_TRUE(SameBits(back, at::tensor({1.0, 0.5, 0.25, 4.0, 0.0, 16.0}, at::kDouble).view({3, 2})));
}

TEST(SendsTest, RowsComeBackAsSumsOverTheRanks) {
  at::Tensor counts = Unset({3});
  at::Tensor place = Unset({3, 3});
  CpuOperations().PlanSends(Chosen(), 2, /*chunk=*/0, counts, place, {})();
  const at::Tensor tokens = at::tensor({1.0, 2.0, 4.0}, at::kFloat).view({3, 1});
  at::Tensor rows = FilledWithNan({4, 1}, at::kFloat);
  CpuOperations().Permute(tokens, place, /*first=*/0, rows)();
  EXPECT_TRUE(SameBits(rows, at::tensor({1.0, 2.0, 2.0, 4.0}, at::kFloat).view({4, 1})));
  at::Tensor sums = FilledWithNan({3, 1}, at::kFloat);
  CpuOperations().Unpermute(rows, place, /*first=*/0, /*add=*/false, sums)();
  EXPECT_TRUE(SameBits(sums, at::tensor({1.0, 4.0, 4.0}, at::kFloat).view({3, 1})));
}

TEST(SendsTest, RefusesAnExpertThatNoRankHas) {
  at::Tensor counts = Unset({2});
  at::Tensor place = Unset({3, 2});
  EXPECT_THROW(CpuOperations().PlanSends(Chosen(), 2, /*chunk=*/0, counts, place, {})(), std::out_of_range);
}

// The rows of an expert may be cut by a window: two of them together are the whole.
TEST(WindowTest, WindowsOfRowsAddUpToAllRows) {
  const at::Tensor chosen = at::tensor({0, 2, 0, 1, 2, -1}, at::kLong).view({3, 2});
  at::Tensor counts = Unset({3});
  at::Tensor row_of = Unset({6});
  at::Tensor begins = Unset({4});
  CpuOperations().PlanRows(chosen, /*chunk=*/0, counts, row_of, {})();
  EXPECT_EQ(ToVector(counts), (std::vector<int64_t>{2, 1, 2}));
  EXPECT_EQ(ToVector(row_of), (std::vector<int64_t>{0, 3, 1, 2, 4, -1}));
  EXPECT_TRUE(CpuOperations().PlanWindow(counts, 0, 4, begins)());
  EXPECT_EQ(ToVector(begins), (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_TRUE(CpuOperations().PlanWindow(counts, 4, 4, begins)());
  EXPECT_EQ(ToVector(begins), (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_FALSE(CpuOperations().PlanWindow(counts, 8, 4, begins)());

  const at::Tensor tokens = at::tensor({1.0, 2.0, 4.0}, at::kFloat).view({3, 1});
  at::Tensor sums = FilledWithNan({3, 1}, at::kFloat);
  for (const int64_t first : {0, 4}) {
    at::Tensor rows = FilledWithNan({4, 1}, at::kFloat);
    CpuOperations().Permute(tokens, row_of, first, rows)();
    CpuOperations().Unpermute(rows, row_of, first, /*add=*/first > 0, sums)();
  }
  EXPECT_TRUE(SameBits(sums, at::tensor({2.0, 4.0, 4.0}, at::kFloat).view({3, 1})));
}

}  // namespace
}  // namespace tandem::ops
