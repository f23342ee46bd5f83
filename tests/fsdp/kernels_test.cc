// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "fsdp/bf16.h"
#include "fsdp/host_loops.h"
#include "fsdp/layout.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/optimizer.h"
#include "fsdp/run_inputs.h"
#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {
namespace {

std::vector<float> RandomFloats(std::mt19937_64& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

TEST(FoldTest, AddsContributionsOneByOneInRankOrder) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const int64_t elements : {1, 7, 64, 5000, 10'001}) {
    const int64_t stride = elements + 3;
    const std::vector<float> contributions = RandomFloats(random, static_cast<size_t>(4 * stride));
    const std::vector<float> before = RandomFloats(random, static_cast<size_t>(elements));
    for (const bool add : {false, true}) {
      std::vector<float> sum = before;
      Fold(sum.data(), contributions.data(), elements, stride, 4, add);
      for (int64_t i = 0; i < elements; ++i) {
        const auto term = [&](int r) { return contributions[static_cast<size_t>(r * stride + i)]; };
        float expected = add ? before[static_cast<size_t>(i)] + term(0) : term(0);
        for (int r = 1; r < 4; ++r) {
          expected += term(r);
        }
        ASSERT_EQ(sum[static_cast<size_t>(i)], expected) << "seed " << seed;
      }
    }
  }
}

TEST(FoldTest, OverwriteForgetsNanAndKeepsNegativeZero) {
  std::vector<double> sum = {std::nan(""), std::nan("")};
  const std::vector<double> contribution = {-0.0, 2};
  Fold(sum.data(), contribution.data(), 2, 2, 1, /*add=*/false);
  EXPECT_TRUE(std::signbit(sum[0]));
  EXPECT_EQ(sum[1], 2);
}

TEST(NormsTest, ChunksEndAtGranulesOfTheBuffer) {
  std::vector<Range> chunks;
  ForEachChunk({.begin = 40, .end = 200}, 64, [&](Range chunk) { chunks.push_back(chunk); });
  EXPECT_EQ(chunks, (std::vector<Range>{{40, 64}, {64, 128}, {128, 192}, {192, 200}}));
}

TEST(NormsTest, SquaresAreExactWhereDoublesAre) {
  for (int64_t elements = 0; elements <= 65; ++elements) {
    std::vector<float> values(static_cast<size_t>(elements));
    double expected = 0;
    for (int64_t i = 0; i < elements; ++i) {
      values[static_cast<size_t>(i)] = static_cast<float>(i + 1);
      expected += static_cast<double>((i + 1) * (i + 1));
    }
    EXPECT_EQ(SumOfSquares(values.data(), elements), expected);
    int64_t nonfinite = 0;
    EXPECT_EQ(SumOfFiniteSquares(values.data(), elements, nonfinite), expected);
    EXPECT_EQ(nonfinite, 0);
  }
}

TEST(NormsTest, LargestMagnitudeIgnoresNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MaxAbs(static_cast<const float*>(nullptr), 0), 0);
  for (const size_t elements : {1, 7, 16, 17, 40}) {
    for (size_t at = 0; at < elements; ++at) {
      std::vector<float> values(elements, -0.5F);
      values[at] = -3;
      EXPECT_EQ(MaxAbs(values.data(), static_cast<int64_t>(elements)), 3) << at << " of " << elements;
      std::vector<double> wide(values.begin(), values.end());
      wide[at] = infinity;
      EXPECT_EQ(MaxAbs(wide.data(), static_cast<int64_t>(elements)), infinity);
      wide[at] = std::nan("");
      EXPECT_EQ(MaxAbs(wide.data(), static_cast<int64_t>(elements)), elements == 1 ? 0 : 0.5);
    }
  }
}

TEST(NormsTest, NonfiniteElementsAreCountedAndLeftOut) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {3, std::nan(""), infinity, -infinity, 4};
  int64_t nonfinite = 10;
  EXPECT_EQ(SumOfFiniteSquares(values.data(), 5, nonfinite), 25);
  EXPECT_EQ(nonfinite, 13);
}

TEST(PiecesTest, GapsAreInNoRun) {
  const Layout layout = MakeLayout({{.name = "a", .shape = {5}},
                                    {.name = "q", .shape = {50}, .block = 0},
                                    {.name = "k", .shape = {50}, .block = 0}},
                                   /*element_bytes=*/4);
  const std::vector<Piece> pieces = PiecesOf(layout, {.begin = 0, .end = 128});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[2].range, (Range{82, 128}));
  EXPECT_EQ(RunsOf(pieces), (std::vector<Range>{{0, 5}, {32, 128}}));
}

// An optimizer step overwrites what is published: the program does not count on what was there.
TEST(OptimizerStepTest, SkippedStepStillPublishes) {
  const Layout layout = MakeLayout({{.name = "w", .shape = {100}}}, /*element_bytes=*/4);
  const Range all = {.begin = 0, .end = layout.elements};
  std::mt19937_64 random(1);
  const auto count = static_cast<size_t>(layout.elements);
  std::vector<float> weights = RandomFloats(random, count);
  std::vector<float> moments(2 * count, 0);
  const std::vector<float> gradients(count, 1);
  const NormOutcome outcome{.applied = false};
  const RunInputs inputs{.learning_rate = 1};
  std::vector<Bf16> expected(count);
  Publish(weights.data(), 100, expected.data());
  std::vector<Bf16> published(count);
  std::memset(published.data(), 0x7f, count * sizeof(Bf16));
  const std::unique_ptr<UnitKernels> unit = CpuShardKernels().MakeUnit({.reduces_bf16 = true,
                                                                        .shard_elements = layout.elements,
                                                                        .num_parameters = 1,
                                                                        .pieces = PiecesOf(layout, all)});
  unit->OptimizerStep({.gradients = gradients.data(),
                       .weights = weights.data(),
                       .exp_avg = moments.data(),
                       .exp_avg_sq = moments.data() + count,
                       .published = published.data(),
                       .outcome = &outcome,
                       .inputs = &inputs},
                      AdamWConfig{});
  EXPECT_EQ(std::memcmp(published.data(), expected.data(), 100 * sizeof(Bf16)), 0);
}

}  // namespace
}  // namespace tandem::fsdp
