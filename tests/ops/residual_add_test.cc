#include "ops/residual_add.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

TEST(ResidualAddTest, AddsEveryElementOfEveryLength) {
  Numbers numbers(101);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int64_t columns : {1, 7, 16, 33}) {
      const at::Tensor x = numbers.Normal({3, columns}).to(type);
      at::Tensor y = numbers.Normal({3, columns}).to(type);
      const at::Tensor expected = y + x;
      ResidualAdd(x, y);
      EXPECT_TRUE(SameBits(y, expected));
    }
  }
}

TEST(ResidualAddTest, RefusesAnotherSizeAndOtherTypes) {
  at::Tensor y = FilledWithNan({4}, at::kFloat);
  EXPECT_THROW(ResidualAdd(FilledWithNan({5}, at::kFloat), y), c10::Error);
  EXPECT_THROW(ResidualAdd(FilledWithNan({4}, at::kDouble), y), c10::Error);
  at::Tensor half = FilledWithNan({4}, at::kHalf);
  EXPECT_THROW(ResidualAdd(FilledWithNan({4}, at::kHalf), half), c10::Error);
}

}  // namespace
}  // namespace tandem::ops
