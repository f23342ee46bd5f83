#include "tests/parity/expect_same.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

namespace tandem::parity {
namespace {

std::vector<uint64_t> Bits(const std::vector<double>& numbers) {
  std::vector<uint64_t> bits;
  for (const double number : numbers) {
    bits.push_back(std::bit_cast<uint64_t>(number));
  }
  return bits;
}

}  // namespace

void ExpectSameBits(const JobRun& a, const JobRun& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    const trainer::StepSummary& x = a.steps[i];
    const trainer::StepSummary& y = b.steps[i];
    ASSERT_EQ(x.step, y.step);
    EXPECT_EQ(Bits({x.loss, x.grad_norm, x.learning_rate}), Bits({y.loss, y.grad_norm, y.learning_rate}))
        << "step " << x.step << ": loss " << x.loss << " and " << y.loss << ", norm " << x.grad_norm
        << " and " << y.grad_norm;
    EXPECT_EQ(Bits(x.weight), Bits(y.weight)) << "step " << x.step;
    EXPECT_EQ(Bits(x.gradient), Bits(y.gradient)) << "step " << x.step;
    EXPECT_EQ(Bits(x.update), Bits(y.update)) << "step " << x.step;
  }
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (const auto& [name, bytes] : a.arrays) {
    EXPECT_TRUE(bytes == b.arrays.at(name)) << name << " differs";
  }
}

}  // namespace tandem::parity
