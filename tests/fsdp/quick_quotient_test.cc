// SPDX-License-Identifier: Apache-2.0
#include "fsdp/quick_quotient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>

namespace tandem::fsdp {
namespace {

// The reciprocal, or a number beside it: as a GPU's instruction may give.
float ReciprocalOf(float y, int units) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(1 / y) + static_cast<uint32_t>(units));
}

class QuickQuotientTest : public testing::Test {
 protected:
  QuickQuotientTest() { std::cout << "seed " << seed_ << "\n"; }

  // Of a magnitude between two powers of two, whose exponents are drawn evenly.
  float Between(int low, int high) {
    const float fraction = 1 + std::ldexp(static_cast<float>(random_() % (1U << 23)), -23);
    return std::ldexp(fraction, low + static_cast<int>(random_() % static_cast<unsigned>(high - low)));
  }

  const uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
};

TEST_F(QuickQuotientTest, IsTheQuotientBetweenTheBounds) {
  // Quotients of the least and the largest numbers too, and of all that are between.
  for (int i = 0; i < 1'000'000; ++i) {
    const bool ends = i % 4 == 0;
    float x = ends ? Between(-80, -78) : Between(-80, 80);
    const float y = ends ? Between(38, 40) : Between(-40, 40);
    x = i % 2 == 0 ? x : -x;
    ASSERT_EQ(QuickQuotient(x, y, ReciprocalOf(y, i % 3 - 1)), x / y) << x << " / " << y;
  }
  EXPECT_EQ(std::signbit(QuickQuotient(-0.0F, 3, ReciprocalOf(3, 0))), true);
}

// Middles between two subnormal numbers, whose numerators and denominators floats hold exactly. Many of them
// go to the wrong neighbour: the bounds are there for these.
TEST_F(QuickQuotientTest, DiffersOnlyBelowTheBounds) {
  float largest_wrong = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double middle = std::ldexp(2 * static_cast<double>(random_() % (1U << 20)) + 1, -150);
    const auto y = std::ldexp(static_cast<float>(random_() % 7 + 1), 37);
    const auto x = static_cast<float>(middle * y);
    ASSERT_EQ(static_cast<double>(x), middle * y);
    ASSERT_LE(y, QuickBounds::kLargestDenominator);
    if (QuickQuotient(x, y, ReciprocalOf(y, 0)) != x / y) {
      largest_wrong = std::max(largest_wrong, x);
    }
  }
  EXPECT_LT(largest_wrong, QuickBounds::kLeastExpAvg);
  EXPECT_GT(largest_wrong, QuickBounds::kLeastExpAvg / 0x1p12F) << "this has seen nothing";
}

}  // namespace
}  // namespace tandem::fsdp
