// SPDX-License-Identifier: Apache-2.0
#include "fsdp/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>

namespace tandem::fsdp {
namespace {

using Words = std::array<uint32_t, 4>;

Words Answer(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  return std::to_array(Philox(counter, key0, key1).word);
}

// The known-answer file of Random123, rows "philox 4x32 10".
TEST(PhiloxTest, GivesThePublishedAnswers) {
  EXPECT_EQ(Answer({{0, 0, 0, 0}}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Answer({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Answer({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, NormalHasMomentsAndTails) {
  constexpr int kSamples = 400'000;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double z = PhiloxNormal(/*seed=*/1, /*stream=*/2, static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    beyond_two += std::abs(z) > 2 ? 1 : 0;
  }
  // Four standard errors each.
  EXPECT_NEAR(sum / kSamples, 0, 4 / std::sqrt(kSamples));
  EXPECT_NEAR(squares / kSamples, 1, 4 * std::sqrt(2.0 / kSamples));
  EXPECT_NEAR(fourth / kSamples, 3, 4 * std::sqrt(96.0 / kSamples));
  EXPECT_NEAR(beyond_two / static_cast<double>(kSamples), 0.0455, 0.0014);
}

// The C library's are not the same bits on every machine, nor a GPU's; these are, and as near to the truth.
TEST(PhiloxTest, LogarithmAndCosineAreAccurate) {
  uint64_t n = 88172645463325252;  // xorshift
  const auto next = [&] {
    n ^= n << 13;
    n ^= n >> 7;
    n ^= n << 17;
    return n >> 11;
  };
  constexpr uint64_t kOne = uint64_t{1} << 53;
  for (int i = 0; i < 200'000; ++i) {
    // Also near 1, where the logarithm vanishes, and of all magnitudes.
    const uint64_t fraction = i < 1000     ? kOne - static_cast<uint64_t>(i)
                              : i % 2 == 0 ? next() + 1
                                           : (next() >> (i % 53)) + 1;
    const long double log = std::log(std::ldexp(static_cast<long double>(fraction), -53));
    const auto rounded = std::abs(static_cast<double>(log));
    EXPECT_LE(std::abs(static_cast<long double>(LogOfFraction(fraction)) - log),
              std::nextafter(rounded, 1e9) - rounded)
        << fraction;
    // Also at the ends of octants, where the polynomial changes.
    const uint64_t turn =
        i % 2 == 0 ? next() : ((kOne >> 3) * static_cast<uint64_t>(i % 8) + next() % 1000) % kOne;
    const long double cosine =
        std::cos(2 * std::numbers::pi_v<long double> * std::ldexp(static_cast<long double>(turn), -53));
    EXPECT_LE(std::abs(static_cast<long double>(CosOfTurn(turn)) - cosine), 0x1p-52L) << turn;
  }
}

TEST(PhiloxTest, SeedStreamAndIndexAllMatter) {
  const double z = PhiloxNormal(1, 2, 3);
  EXPECT_EQ(z, PhiloxNormal(1, 2, 3));
  EXPECT_NE(z, PhiloxNormal(2, 2, 3));
  EXPECT_NE(z, PhiloxNormal(1, 3, 3));
  EXPECT_NE(z, PhiloxNormal(1, 2, 4));
  EXPECT_NE(z, PhiloxNormal(1, 2, 3 + (uint64_t{1} << 32)));
  EXPECT_NE(z, PhiloxNormal(1, 2 + (uint64_t{1} << 32), 3));
  EXPECT_NE(z, PhiloxNormal(1 + (uint64_t{1} << 32), 2, 3));
}

}  // namespace
}  // namespace tandem::fsdp
