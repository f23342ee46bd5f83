// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "ops/cuda/operations.h"
#include "ops/operations.h"
#include "ops/tokens.h"
#include "tests/cuda/against_cpu.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class CudaCrossEntropyTest : public AgainstCpuTest {};

// Vocabularies whose rows one block has, or several hold: of float or of bfloat16 alone.
constexpr std::array<int64_t, 4> kForms = {16, 2048, 70'000, 100'000};

at::Tensor LseFor(const at::Tensor& logits) {
  return at::empty({logits.size(0)}, logits.options().dtype(StatisticsOf(logits.scalar_type())));
}

// Short rows, rows that are no whole packs, and rows that a multiprocessor holds: one or several a
// multiprocessor, of those that shared memory has room for, of those that it has not, and the first that are
// too long (in bfloat16; in float half as long).
TEST_P(CudaCrossEntropyTest, WholeRows) {
  struct Case {
    int64_t sequences;
    int64_t vocabulary;
  };
  for (const auto& [sequences, vocabulary] : std::vector<Case>{{4, 5},
                                                               {4, 300},
                                                               {4, 8192},
                                                               {40, 70'000},
                                                               {4, 79'872},
                                                               {4, 79'880},
                                                               {4, 100'000},
                                                               {1, 128'256},
                                                               {1, 159'744},
                                                               {1, 159'752}}) {
    SCOPED_TRACE(vocabulary);
    const int64_t rows = sequences * 8;
    const at::Tensor ids = numbers_.Integers({sequences, 9}, vocabulary);
    // Beside a target's gradient all others are small, and errors are of the largest: the last output has
    // those others alone.
    Compare({Normal({rows, vocabulary})},
            {FilledWithNan({1}, at::kDouble), NanOf({rows, vocabulary}), Normal({rows, vocabulary}),
             NanOf({rows, vocabulary})},
            [&](const Operations& ops, const Tensors& in, Tensors& out) {
              const at::Tensor targets = ids.to(in[0].device()).narrow(1, 1, 8);  // rows are apart
              at::Tensor lse = LseFor(in[0]);
              at::Tensor loss = out[0].clone();
              ops.CrossEntropy(in[0], targets, lse, out[0], out[1])();
              ops.CrossEntropy(out[2], targets, lse, loss, out[2])();  // in place
              out[3].copy_(out[1]).scatter_(1, targets.reshape({rows, 1}), 0);
            });
  }
}

TEST_P(CudaCrossEntropyTest, TargetsThatDoNotCountAddNothing) {
  for (const int64_t vocabulary : kForms) {
    SCOPED_TRACE(vocabulary);
    at::Tensor ids = numbers_.Integers({2, 3}, vocabulary);
    ids[0][2] = kNotCounted;
    ids[1][1] = kNotCounted;
    Compare({Normal({6, vocabulary})}, {FilledWithNan({1}, at::kDouble), NanOf({6, vocabulary})},
            [&](const Operations& ops, const Tensors& in, Tensors& out) {
              at::Tensor lse = LseFor(in[0]);
              ops.CrossEntropy(in[0], ids.to(in[0].device()), lse, out[0], out[1])();
              EXPECT_EQ(out[1][2].abs().max().item<double>(), 0);
              EXPECT_EQ(out[1][4].abs().max().item<double>(), 0);
            });
  }
}

// Nothing is subtracted from its row's gradient either.
TEST_P(CudaCrossEntropyTest, ATargetOutsideTheVocabularyMakesNan) {
  for (const int64_t vocabulary : kForms) {
    const at::Tensor logits = Normal({4, vocabulary}).to(at::kCUDA);
    const auto run = [&](const at::Tensor& targets, at::Tensor& loss) {
      at::Tensor lse = LseFor(logits);
      at::Tensor grad = NanOf({4, vocabulary}).to(at::kCUDA);
      CudaOperations().CrossEntropy(logits, targets, lse, loss, grad)();
      return grad;
    };
    at::Tensor targets = numbers_.Integers({1, 4}, vocabulary).to(at::kCUDA);
    at::Tensor loss = FilledWithNan({1}, at::kDouble).to(at::kCUDA);
    const at::Tensor sound = run(targets, loss);
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
    const int64_t column = targets[0][2].item<int64_t>();
    for (const int64_t outside : {vocabulary, int64_t{-2}, int64_t{1} << 40}) {
      SCOPED_TRACE(testing::Message() << outside << " of " << vocabulary);
      targets[0][2].fill_(outside);
      const at::Tensor grad = run(targets, loss.fill_(0));
      EXPECT_TRUE(std::isnan(loss.item<double>()));
      EXPECT_GT(grad[2][column].item<double>(), 0);
      grad[2][column].copy_(sound[2][column]);
      EXPECT_TRUE(at::equal(grad, sound));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaCrossEntropyTest, AllTypes(),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace tandem::ops
