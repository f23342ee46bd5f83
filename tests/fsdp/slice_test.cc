// SPDX-License-Identifier: Apache-2.0
#include "fsdp/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tandem::fsdp {
namespace {

using testing::ElementsAre;

// The elements of the whole tensor that a slice has, in the slice's order.
std::vector<int64_t> ElementsOf(const Shape& shape, const Slice& slice) {
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < *NumElements(shape); ++i) {
    int64_t rest = i;
    bool within = true;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      const int64_t index = rest % shape[d];
      within = within && (slice.empty() || (slice[d].begin <= index && index < slice[d].end));
    }
    if (within) {
      elements.push_back(i);
    }
  }
  return elements;
}

TEST(SliceTest, ColumnsAreRunsOfTheWholeByRow) {
  const Shape shape = {3, 8};
  const Slice columns = {{0, 3}, {2, 5}};
  EXPECT_EQ(NumElements(shape, columns), 9);
  EXPECT_THAT(CommonRuns(shape, {}, {0, 24}, columns, {0, 9}),
              ElementsAre(CommonRun{2, 0, 3}, CommonRun{10, 3, 3}, CommonRun{18, 6, 3}));
  EXPECT_THAT(CommonRuns(shape, {}, {0, 24}, columns, {4, 7}),
              ElementsAre(CommonRun{11, 4, 2}, CommonRun{18, 6, 1}));
}

TEST(SliceTest, EqualSlicesAndWholeRowsAreOneRun) {
  const Shape shape = {3, 8};
  const Slice columns = {{0, 3}, {2, 5}};
  const Slice rows = {{1, 3}, {0, 8}};
  EXPECT_THAT(CommonRuns(shape, columns, {1, 8}, columns, {0, 7}), ElementsAre(CommonRun{1, 1, 6}));
  EXPECT_THAT(CommonRuns(shape, {}, {0, 24}, rows, {0, 16}), ElementsAre(CommonRun{8, 0, 16}));
  EXPECT_THAT(CommonRuns(shape, {}, {0, 24}, {}, {0, 24}), ElementsAre(CommonRun{0, 0, 24}));
}

TEST(SliceTest, DisjointSlicesHaveNothingInCommon) {
  const Shape shape = {3, 8};
  EXPECT_FALSE(Overlap(shape, {{0, 3}, {0, 4}}, {{0, 3}, {4, 8}}));
  EXPECT_THAT(CommonRuns(shape, {{0, 3}, {0, 4}}, {0, 12}, {{0, 3}, {4, 8}}, {0, 12}), ElementsAre());
  EXPECT_THAT(CommonRuns(shape, {}, {0, 24}, {{2, 2}, {0, 8}}, {0, 0}), ElementsAre());
}

TEST(SliceTest, SlicesLieWithinTheShape) {
  EXPECT_TRUE(IsSliceOf({3, 8}, {}));
  EXPECT_TRUE(IsSliceOf({3, 8}, {{0, 3}, {8, 8}}));
  EXPECT_FALSE(IsSliceOf({3, 8}, {{0, 3}}));
  EXPECT_FALSE(IsSliceOf({3, 8}, {{0, 3}, {0, 9}}));
  EXPECT_FALSE(IsSliceOf({3, 8}, {{-1, 3}, {0, 8}}));
  EXPECT_FALSE(IsSliceOf({3, 8}, {{2, 1}, {0, 8}}));
  EXPECT_EQ(NumElements({int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(NumElements({2, -1}), std::nullopt);
}

TEST(SliceTest, RandomRunsAreTheLongestCommonElements) {
  const unsigned seed = 20261128;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto number = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  for (int trial = 0; trial < 3000; ++trial) {
    Shape shape;
    Slice slices[2];
    const bool whole[2] = {number(3) == 0, number(3) == 0};
    for (int64_t dims = 1 + number(3); dims > 0; --dims) {
      shape.push_back(1 + number(4));
      for (int i = 0; i < 2; ++i) {
        if (!whole[i]) {
          const bool full = number(1) == 0;
          const int64_t begin = full ? 0 : number(shape.back());
          slices[i].push_back({begin, full ? shape.back() : begin + number(shape.back() - begin)});
        }
      }
    }
    const std::vector<int64_t> elements[2] = {ElementsOf(shape, slices[0]), ElementsOf(shape, slices[1])};
    Range asked[2];
    for (int i = 0; i < 2; ++i) {
      const auto size = static_cast<int64_t>(elements[i].size());
      ASSERT_EQ(size, NumElements(shape, slices[i]));
      asked[i].begin = number(size);
      asked[i].end = asked[i].begin + number(size - asked[i].begin);
    }
    std::map<int64_t, int64_t> in_b;  // element of the whole → of slice b
    for (int64_t i = asked[1].begin; i < asked[1].end; ++i) {
      in_b[elements[1][static_cast<size_t>(i)]] = i;
    }
    std::vector<CommonRun> expected;
    for (int64_t i = asked[0].begin; i < asked[0].end; ++i) {
      const auto found = in_b.find(elements[0][static_cast<size_t>(i)]);
      if (found == in_b.end()) {
        continue;
      }
      CommonRun* const last = expected.empty() ? nullptr : &expected.back();
      if (last != nullptr && last->a + last->elements == i && last->b + last->elements == found->second) {
        ++last->elements;
      } else {
        expected.push_back({i, found->second, 1});
      }
    }
    ASSERT_EQ(CommonRuns(shape, slices[0], asked[0], slices[1], asked[1]), expected) << "trial " << trial;
  }
}

}  // namespace
}  // namespace tandem::fsdp
