// SPDX-License-Identifier: Apache-2.0
#include "fsdp/layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {
namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t dim : shape) {
    product *= dim;
  }
  return product;
}

// A random unit: single parameters and blocks of one to four.
std::vector<ParameterSpec> RandomParameters(std::mt19937_64& random) {
  std::vector<ParameterSpec> parameters;
  const int groups = static_cast<int>(random() % 6) + 1;
  for (int group = 0; group < groups; ++group) {
    const int members = random() % 2 == 0 ? 1 : static_cast<int>(random() % 4) + 1;
    for (int member = 0; member < members; ++member) {
      ParameterSpec parameter{.name = "parameter" + std::to_string(parameters.size()),
                              .block = members > 1 ? group : -1};
      const int dims = static_cast<int>(random() % 3) + 1;
      for (int dim = 0; dim < dims; ++dim) {
        parameter.shape.push_back(static_cast<int64_t>(random() % 17) + 1);
      }
      parameters.push_back(parameter);
    }
  }
  return parameters;
}

TEST(LayoutTest, GapsAndPiecesCoverAnyRange) {
  const Layout layout = MakeLayout({{.name = "a", .shape = {5, 7}}, {.name = "b", .shape = {9}}}, 4);
  EXPECT_EQ(GapsOf(layout, {.begin = 0, .end = 192}), (std::vector<Gap>{{{35, 64}, 0}, {{73, 192}, 1}}));
  EXPECT_EQ(GapsOf(layout, {.begin = 40, .end = 70}), (std::vector<Gap>{{{40, 64}, -1}}));
  EXPECT_EQ(GapsOf(layout, {.begin = 10, .end = 20}), (std::vector<Gap>{}));
  EXPECT_EQ(GapsOf(layout, {.begin = 128, .end = 192}), (std::vector<Gap>{{{128, 192}, -1}}));
}

TEST(LayoutTest, RandomUnitsKeepEveryPromise) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 50'000; ++repeat) {
    const std::vector<ParameterSpec> parameters = RandomParameters(random);
    const int element_bytes = 1 << random() % 4;
    const Layout layout = MakeLayout(parameters, element_bytes);
    ASSERT_EQ(layout.parameters.size(), parameters.size());
    int64_t end = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = layout.parameters[i];
      ASSERT_EQ(parameter.name, parameters[i].name);
      ASSERT_EQ(parameter.shape, parameters[i].shape);
      ASSERT_EQ(parameter.range.size(), Product(parameters[i].shape));
      ASSERT_GE(parameter.range.begin, end) << "overlap";
      const bool in_block =
          i > 0 && parameters[i].block >= 0 && parameters[i].block == parameters[i - 1].block;
      if (in_block) {
        ASSERT_EQ(parameter.range.begin, end) << "a block has no gaps";
      } else {
        ASSERT_EQ(parameter.range.begin * element_bytes % 128, 0);
        ASSERT_LT((parameter.range.begin - end) * element_bytes, 128)
            << "no more padding than alignment needs";
      }
      end = parameter.range.end;
    }
    ASSERT_EQ(layout.elements % kGranule, 0);
    ASSERT_GE(layout.elements, end);
    ASSERT_LT(layout.elements - end, kGranule);
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const int64_t shard = ShardElements(layout, {.inner = ranks});
      ASSERT_EQ(shard % kGranule, 0);
      ASSERT_EQ(PaddedElements(layout, {.inner = ranks}), ranks * shard);
      ASSERT_GE(PaddedElements(layout, {.inner = ranks}), layout.elements);
      ASSERT_LT(PaddedElements(layout, {.inner = ranks}) - layout.elements, ranks * kGranule);
    }
  }
}

TEST(LayoutTest, ParametersOfABlockAreOneMatrix) {
  const Layout layout = MakeLayout({{.name = "norm", .shape = {5}},
                                    {.name = "q", .shape = {3, 5}, .block = 0},
                                    {.name = "k", .shape = {1, 5}, .block = 0},
                                    {.name = "v", .shape = {1, 5}, .block = 0},
                                    {.name = "o", .shape = {5, 3}}},
                                   /*element_bytes=*/4);
  EXPECT_EQ(layout.parameters[1].range, (Range{32, 47}));
  EXPECT_EQ(layout.parameters[2].range, (Range{47, 52}));
  EXPECT_EQ(layout.parameters[3].range, (Range{52, 57}));
  EXPECT_EQ(layout.parameters[4].range, (Range{64, 79}));
  EXPECT_EQ(layout.elements, 128);
}

TEST(LayoutTest, NeighbouringBlocksAreAlignedApart) {
  const Layout layout =
      MakeLayout({{.name = "a", .shape = {3}, .block = 0}, {.name = "b", .shape = {3}, .block = 1}},
                 /*element_bytes=*/8);
  EXPECT_EQ(layout.parameters[1].range.begin, 16);
}

TEST(LayoutTest, BadUnitsAreRefusedByName) {
  const auto message = [](const std::vector<ParameterSpec>& parameters) {
    try {
      MakeLayout(parameters, 4);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({{.name = "w", .shape = {3, 0}}}),
            "layout: parameter 'w': has dim 0, every dim must be at least 1");
  EXPECT_EQ(message({{.name = "w", .shape = {-3}}}),
            "layout: parameter 'w': has dim -3, every dim must be at least 1");
  EXPECT_EQ(message({{.name = "w", .shape = {}}}),
            "layout: parameter 'w': has no dims, at least one is needed");
  EXPECT_EQ(message({{.name = "w", .shape = {1}}, {.name = "w", .shape = {1}}}),
            "layout: parameter 'w': appears twice");
  EXPECT_EQ(message({{.name = "w", .shape = {2, 3}, .slice = {{0, 2}, {1, 4}}}}),
            "layout: parameter 'w': has a slice that is not within its shape");
  EXPECT_EQ(message({{.name = "w", .shape = {int64_t{1} << 32, int64_t{1} << 32}}}),
            "layout: parameter 'w': has more than 2^63 elements");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(message({{.name = "a", .shape = {most - 40}}, {.name = "b", .shape = {64}}}),
            "layout: parameter 'b': ends beyond 2^63 elements");
  EXPECT_EQ(message({{.name = "a", .shape = {most}}}), "layout: the buffer ends beyond 2^63 elements");
  EXPECT_EQ(message({{.name = "q", .shape = {1}, .block = 0},
                     {.name = "n", .shape = {1}},
                     {.name = "k", .shape = {1}, .block = 0}}),
            "layout: parameter 'k': continues block 0 after another parameter");
  EXPECT_THROW(MakeLayout({}, 3), std::invalid_argument);
}

TEST(LayoutTest, SlicesLieLikeTensors) {
  const Layout layout = MakeLayout({{.name = "columns", .shape = {4, 6}, .slice = {{0, 4}, {3, 6}}},
                                    {.name = "none", .shape = {4, 6}, .slice = {{2, 2}, {0, 6}}},
                                    {.name = "rows", .shape = {4, 6}, .slice = {{1, 3}, {0, 6}}}},
                                   4);
  ASSERT_EQ(layout.parameters.size(), 2u);
  EXPECT_EQ(layout.parameters[0].range, (Range{0, 12}));
  EXPECT_EQ(layout.parameters[0].shape, (Shape{4, 6}));
  EXPECT_EQ(layout.parameters[1].name, "rows");
  EXPECT_EQ(layout.parameters[1].range, (Range{32, 44}));
  EXPECT_EQ(ParameterElements(layout), 24);
  EXPECT_EQ(WholeRuns(layout.parameters[0], {2, 5}), (std::vector<CommonRun>{{5, 2, 1}, {9, 3, 2}}));
  EXPECT_EQ(WholeRuns(layout.parameters[1], {33, 44}), (std::vector<CommonRun>{{7, 1, 11}}));
}

}  // namespace
}  // namespace tandem::fsdp
