// SPDX-License-Identifier: Apache-2.0
#include "fsdp/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::fsdp {
namespace {

// A large part is written by several threads, small ones by one.
TEST(InitializeTest, PartsHaveTheSameElements) {
  constexpr int64_t kElements = 3'000'017;
  const Layout layout =
      MakeLayout({{.name = "before", .shape = {5}}, {.name = "large", .shape = {kElements}}}, 4);
  const Parameter& parameter = layout.parameters[1];
  const ParameterInit init{.deviation = 0.02};
  std::vector<float> whole(kElements, -1);
  InitializeParameter(7, parameter, init, parameter.range, whole.data());
  std::vector<float> parts(kElements, -2);
  for (int64_t begin = 0; begin < kElements; begin += 100'003) {
    const Range part{parameter.range.begin + begin,
                     parameter.range.begin + std::min(begin + 100'003, kElements)};
    InitializeParameter(7, parameter, init, part, parts.data() + begin);
  }
  EXPECT_TRUE(whole == parts);
}

TEST(InitializeTest, ASliceHasTheElementsOfTheWhole) {
  const Parameter whole = MakeLayout({{.name = "w", .shape = {5, 9}}}, 4).parameters[0];
  const Parameter slice =
      MakeLayout(
          {{.name = "before", .shape = {3}}, {.name = "w", .shape = {5, 9}, .slice = {{1, 5}, {2, 6}}}}, 4)
          .parameters[1];
  const ParameterInit init{.deviation = 0.02};
  std::vector<double> all(45);
  InitializeParameter(7, whole, init, whole.range, all.data());
  std::vector<double> of_slice(16);
  for (const int64_t begin : {0, 5, 10, 15}) {  // parts as shards cut them
    const Range part{slice.range.begin + begin, slice.range.begin + std::min<int64_t>(begin + 5, 16)};
    InitializeParameter(7, slice, init, part, of_slice.data() + begin);
  }
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < 4; ++column) {
      EXPECT_EQ(of_slice[4 * row + column], all[9 * (row + 1) + column + 2]) << row << ", " << column;
    }
  }
  std::vector<double> of_another_seed(45);
  InitializeParameter(8, whole, init, whole.range, of_another_seed.data());
  EXPECT_NE(of_another_seed, all);
}

std::vector<double> ValuesOf(const ParameterInit& init) {
  const Parameter parameter = MakeLayout({{.name = "w", .shape = {100'000}}}, 8).parameters[0];
  std::vector<double> values(100'000);
  InitializeParameter(7, parameter, init, parameter.range, values.data());
  return values;
}

// The share of the numbers that are less than the middle of their distribution; of all, in its range.
void ExpectSpread(const std::vector<double>& values, double least, double middle, double most) {
  int64_t below = 0;
  for (const double value : values) {
    ASSERT_GT(value, least);
    ASSERT_LT(value, most);
    below += value < middle ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(below) / static_cast<double>(values.size()), 0.5, 0.01);
}

TEST(InitializeTest, NumbersOfMixersSpreadAsTheirDistributionsSay) {
  ExpectSpread(ValuesOf({.distribution = Distribution::kUniform, .deviation = 0.5}), -0.5, 0, 0.5);
  std::vector<double> rates = ValuesOf({.distribution = Distribution::kDecayRates});
  std::transform(rates.begin(), rates.end(), rates.begin(), [](double rate) { return std::exp(rate); });
  ExpectSpread(rates, 1, 8.5, 16);
  std::vector<double> steps = ValuesOf({.distribution = Distribution::kTimeSteps});
  std::transform(steps.begin(), steps.end(), steps.begin(),
                 [](double step) { return std::log1p(std::exp(step)); });
  ExpectSpread(steps, 0.001, 0.01, 0.1);
}

TEST(InitializeTest, ZeroDeviationIsPositiveZeros) {
  for (const Distribution distribution : {Distribution::kNormal, Distribution::kUniform}) {
    for (const double value : ValuesOf({.distribution = distribution, .deviation = 0})) {
      ASSERT_FALSE(std::signbit(value) || value != 0);
    }
  }
}

}  // namespace
}  // namespace tandem::fsdp
