// SPDX-License-Identifier: Apache-2.0
// Tests of the loss that run on the CPU and on the GPU (tested_operations.h).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"
#include "tests/ops/tested_operations.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// On a GPU: rows that are no whole packs; short ones; those that several blocks hold, of float or of bfloat16
// alone; and those that are too long for it, of float or double.
constexpr std::array<int64_t, 4> kVocabularies = {301, 2048, 70'000, 100'000};

class LossTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  struct Result {
    double loss = 0;
    at::Tensor grad;
  };

  at::Tensor Normal(int64_t vocabulary) const { return Normal(rows_, vocabulary); }
  at::Tensor Normal(int64_t rows, int64_t vocabulary) const {
    return at::randn({rows, vocabulary}, at::TensorOptions(TorchDeviceOf(ops_))).to(GetParam());
  }
  at::Tensor Targets(int64_t vocabulary) {
    return numbers_.Integers({1, rows_}, vocabulary).to(TorchDeviceOf(ops_));
  }
  at::Tensor Empty(const std::vector<int64_t>& shape, at::ScalarType type) const {
    return FilledWithNan(shape, type).to(TorchDeviceOf(ops_));
  }

  Result LossOf(const at::Tensor& logits, const at::Tensor& targets) const {
    at::Tensor lse = Empty({logits.size(0)}, StatisticsOf(GetParam()));
    at::Tensor loss = Empty({1}, at::kDouble);
    at::Tensor grad = at::empty_like(logits);
    ops_.CrossEntropy(logits, targets, lse, loss, grad)();
    return {loss.item<double>(), grad};
  }

  const Operations& ops_ = Tested();
  // On a GPU more than rows are computed at once, so that others follow where one is not finite.
  const int64_t rows_ = (ops_.kind() == DeviceKind::kGpu) ? 300 : 3;
  Numbers numbers_{67};
};
INSTANTIATE_TEST_SUITE_P(Types, LossTest, AllTypes());

TEST_P(LossTest, NanShowsInLossAndItsRowAlone) {
  for (const int64_t vocabulary : kVocabularies) {
    const at::Tensor logits = Normal(vocabulary);
    const at::Tensor targets = Targets(vocabulary);
    const Result sound = LossOf(logits, targets);
    EXPECT_TRUE(std::isfinite(sound.loss));
    const auto expect_in_row_alone = [&](const at::Tensor& broken, const char* what) {
      SCOPED_TRACE(testing::Message() << what << ", vocabulary " << vocabulary);
      const Result result = LossOf(broken, targets);
      EXPECT_TRUE(std::isnan(result.loss));
      EXPECT_TRUE(result.grad[1].isnan().all().item<bool>());
      for (const auto& [first, count] : std::array<std::array<int64_t, 2>, 2>{{{0, 1}, {2, rows_ - 2}}}) {
        EXPECT_TRUE(at::equal(result.grad.narrow(0, first, count), sound.grad.narrow(0, first, count)));
      }
    };
    for (const int64_t column : {int64_t{0}, vocabulary / 2, vocabulary - 1}) {
      const at::Tensor broken = logits.clone();
      broken[1][column].fill_(kNan);
      expect_in_row_alone(broken, "NaN");
    }
    const at::Tensor broken = logits.clone();
    broken[1].fill_(-kInfinity);  // no probability is left
    expect_in_row_alone(broken, "-inf alone");
  }
}

// As where a model's logits are masked.
TEST_P(LossTest, MinusInfinityHasNoProbability) {
  for (const int64_t vocabulary : kVocabularies) {
    SCOPED_TRACE(vocabulary);
    const int64_t masked = vocabulary * 9 / 10;
    const at::Tensor targets = Targets(vocabulary - masked).add(masked);
    const at::Tensor logits = Normal(vocabulary);
    logits[1].narrow(0, 0, masked).fill_(-kInfinity);
    // The target alone is left.
    const int64_t target = targets[0][2].item<int64_t>();
    logits[2].fill_(-kInfinity)[target].fill_(3);
    const Result result = LossOf(logits, targets);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_TRUE(result.grad[1].narrow(0, 0, masked).eq(0).all().item<bool>());
    EXPECT_FALSE(result.grad[1].narrow(0, masked, vocabulary - masked).eq(0).any().item<bool>());
    EXPECT_TRUE(result.grad[2].eq(0).all().item<bool>());
  }
}

TEST_P(LossTest, HugeLogitsDoNotOverflow) {
  const at::Tensor logits = Empty({1, 3}, GetParam()).zero_();
  logits[0][1].fill_(32768);
  const at::Tensor targets = at::full({1, 1}, 0, at::TensorOptions(TorchDeviceOf(ops_)).dtype(at::kLong));
  EXPECT_EQ(LossOf(logits, targets).loss, 32768);
  logits[0][2].fill_(kNan);
  EXPECT_TRUE(std::isnan(LossOf(logits, targets).loss));
}

// In every kernel; chunks begin within sequences, and there is one without rows before each.
TEST_P(LossTest, ChunksGiveTheBitsOfAllRows) {
  constexpr int64_t kRows = 24;
  for (const int64_t vocabulary : {5, 301, 8192, 70'000, 128'256}) {
    SCOPED_TRACE(vocabulary);
    const at::Tensor targets =
        numbers_.Integers({3, 9}, vocabulary).to(TorchDeviceOf(ops_)).narrow(1, 1, 8);  // rows are apart
    const at::Tensor logits = Normal(kRows, vocabulary);
    const Result whole = LossOf(logits, targets);
    for (const int64_t chunk : {8, 7, 1}) {
      SCOPED_TRACE(chunk);
      const at::Tensor lse = Empty({kRows}, StatisticsOf(GetParam()));
      const at::Tensor loss = Empty({1}, at::kDouble);
      const at::Tensor gradients = logits.clone();
      for (int64_t first = 0; first <= kRows; first += chunk) {
        for (const int64_t rows : {int64_t{0}, std::min(chunk, kRows - first)}) {
          const at::Tensor in_place = gradients.narrow(0, first, rows);
          ops_.CrossEntropyChunk(in_place, targets, first, lse, loss, in_place)();
        }
      }
      EXPECT_EQ(loss.item<double>(), whole.loss);
      EXPECT_TRUE(SameBits(gradients.cpu(), whole.grad.cpu()));
    }
  }
}

}  // namespace
}  // namespace tandem::ops
