// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/attention_run.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

std::string Describe(const AttentionShape& s) {
  return (std::ostringstream() << "B " << s.sequences << " S " << s.length << " heads " << s.heads << ":"
                               << s.kv_heads << " d " << s.head_dim)
      .str();
}

struct Results {
  at::Tensor context, lse, grad_qkv;
};

// documents: as Operations takes it.
Results RunOps(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& grad,
               const at::Tensor& documents = {}) {
  std::vector<at::Tensor> out = AttentionOutputs(shape, qkv);
  RunAttention(CpuOperations(), shape, qkv, documents, grad, out);
  return {.context = out[0], .lse = out[1], .grad_qkv = out[2]};
}

void ExpectSameBits(const Results& a, const Results& b) {
  EXPECT_TRUE(SameBits(a.context, b.context));
  EXPECT_TRUE(SameBits(a.lse, b.lse));
  EXPECT_TRUE(SameBits(a.grad_qkv, b.grad_qkv));
}

// [B, heads, S, d] with the keys' and values' heads repeated; {context [B * S, heads * d], lse}.
std::pair<at::Tensor, at::Tensor> Reference(const AttentionShape& s, const at::Tensor& qkv,
                                            const at::Tensor& documents = {}) {
  const auto head = [&](int64_t from, int64_t count) {
    return qkv.narrow(1, from * s.head_dim, count * s.head_dim)
        .view({s.sequences, s.length, count, s.head_dim})
        .transpose(1, 2);
  };
  const int64_t group = s.heads / s.kv_heads;
  const at::Tensor q = head(0, s.heads);
  const at::Tensor k = head(s.heads, s.kv_heads).repeat_interleave(group, 1);
  const at::Tensor v = head(s.heads + s.kv_heads, s.kv_heads).repeat_interleave(group, 1);
  at::Tensor hidden = at::ones({s.length, s.length}, at::kBool).triu(1);
  if (documents.defined()) {
    const at::Tensor starts = documents.view({s.sequences, 1, s.length, 1});
    hidden = hidden.logical_or(at::arange(s.length, at::kLong) < starts);
  }
  const double scale = s.scale > 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.head_dim));
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) * scale)
                                .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor context = at::matmul(at::softmax(scores, -1), v);
  return {context.transpose(1, 2).reshape({s.sequences * s.length, s.heads * s.head_dim}),
          scores.logsumexp(-1)};
}

// qkv: a leaf, in double; this call fills its gradient. grad: of the context, in double.
void ExpectThoseOfAutograd(const Results& actual, const AttentionShape& shape, const at::Tensor& qkv,
                           const at::Tensor& grad, const at::Tensor& documents = {}) {
  const auto [context, lse] = Reference(shape, qkv, documents);
  context.backward(grad);
  const at::ScalarType type = actual.context.scalar_type();
  EXPECT_LE(RelativeError(actual.context, context), Tolerance(type));
  EXPECT_LE(RelativeError(actual.lse, lse), Tolerance(StatisticsOf(type)));
  // The backward reads the context, which was rounded, in a sum over the head's dims.
  const double slack = type == at::kBFloat16 ? 4 : 1;
  EXPECT_LE(RelativeError(actual.grad_qkv, qkv.grad()), slack * Tolerance(type));
}

// [B, S], one list of lengths a sequence, that add up to S.
at::Tensor StartsOf(const std::vector<std::vector<int64_t>>& lengths, int64_t length) {
  at::Tensor starts = at::empty({static_cast<int64_t>(lengths.size()), length}, at::kLong);
  for (size_t sequence = 0; sequence < lengths.size(); ++sequence) {
    int64_t first = 0;
    for (const int64_t document : lengths[sequence]) {
      starts[static_cast<int64_t>(sequence)].narrow(0, first, document).fill_(first);
      first += document;
    }
    EXPECT_EQ(first, length);
  }
  return starts;
}

// Every token begins a document with a chance of one in `mean`.
at::Tensor RandomStarts(Numbers& numbers, int64_t sequences, int64_t length, int64_t mean) {
  const at::Tensor begins = numbers.Integers({sequences, length}, mean) == 0;
  return std::get<0>((at::arange(length, at::kLong) * begins).cummax(1));
}

class AttentionTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, AttentionTest, AllTypes());

TEST_P(AttentionTest, MatchesAutogradAndRepeatsBitForBit) {
  const at::ScalarType type = GetParam();
  Numbers numbers(71);
  for (const AttentionShape& shape : std::vector<AttentionShape>{{1, 1, 1, 1, 2},
                                                                 {2, 1, 4, 2, 16},
                                                                 {1, 7, 1, 1, 5},
                                                                 {2, 31, 4, 2, 12},
                                                                 {1, 32, 2, 1, 16},
                                                                 {2, 65, 6, 3, 20},
                                                                 {1, 130, 2, 2, 33},
                                                                 {2, 64, 2, 2, 32},
                                                                 {1, 100, 3, 1, 64},
                                                                 // Several blocks of keys and of rows.
                                                                 {1, 257, 1, 1, 7},
                                                                 {1, 600, 4, 2, 20},
                                                                 {2, 801, 1, 1, 16},
                                                                 // With a scale of their own.
                                                                 {2, 31, 4, 2, 12, true, false, 0.6},
                                                                 {1, 100, 3, 1, 64, true, false, 0.015625}}) {
    SCOPED_TRACE(Describe(shape));
    const int64_t tokens = shape.sequences * shape.length;
    const at::Tensor qkv = Leaf(Rounded(numbers.Normal({tokens, shape.qkv_columns()}), type));
    const at::Tensor grad = Rounded(numbers.Normal({tokens, shape.context_columns()}), type);
    const Results first = RunOps(shape, qkv.detach().to(type), grad.to(type));
    ExpectThoseOfAutograd(first, shape, qkv, grad);
    ExpectSameBits(first, RunOps(shape, qkv.detach().to(type), grad.to(type)));
  }
}

TEST_P(AttentionTest, OfDocumentsMatchesAutogradAndRepeatsItsBits) {
  const at::ScalarType type = GetParam();
  Numbers numbers(74);
  const auto check = [&](AttentionShape shape, const at::Tensor& documents) {
    SCOPED_TRACE(Describe(shape));
    shape.documents = true;
    const int64_t tokens = shape.sequences * shape.length;
    const at::Tensor qkv = Leaf(Rounded(numbers.Normal({tokens, shape.qkv_columns()}), type));
    const at::Tensor grad = Rounded(numbers.Normal({tokens, shape.context_columns()}), type);
    const Results first = RunOps(shape, qkv.detach().to(type), grad.to(type), documents);
    ExpectThoseOfAutograd(first, shape, qkv, grad, documents);
    // The same starts as columns of a wider matrix, which is how a batch has them.
    at::Tensor batch = numbers.Integers({shape.sequences, 2 * shape.length + 1}, 9);
    batch.narrow(1, shape.length + 1, shape.length).copy_(documents);
    ExpectSameBits(first, RunOps(shape, qkv.detach().to(type), grad.to(type),
                                 batch.narrow(1, shape.length + 1, shape.length)));
  };
  check({1, 1, 1, 1, 2}, StartsOf({{1}}, 1));
  check({2, 7, 2, 1, 5}, StartsOf({{7}, {1, 1, 1, 1, 1, 1, 1}}, 7));
  // Documents that begin and end inside a block of rows, at its edges, and beyond it.
  check({2, 65, 4, 2, 12}, StartsOf({{31, 1, 1, 32}, {32, 33}}, 65));
  check({1, 130, 3, 3, 20}, StartsOf({{3, 97, 17, 13}}, 130));
  // Inside later blocks of keys, at their edges, and over several of them.
  check({1, 800, 2, 1, 16}, StartsOf({{100, 211, 201, 1, 287}}, 800));
  check({2, 700, 2, 2, 12}, StartsOf({{255, 1, 256, 188}, {257, 443}}, 700));
  for (const int64_t mean : {2, 9, 40}) {
    check({2, 100, 4, 2, 16}, RandomStarts(numbers, 2, 100, mean));
    check({3, 77, 2, 1, 33}, RandomStarts(numbers, 3, 77, mean));
  }
}

TEST_P(AttentionTest, OneDocumentHasTheBitsOfNone) {
  const AttentionShape shape{2, 70, 4, 2, 12};
  Numbers numbers(75);
  const at::Tensor qkv = numbers.Normal({140, 96}).to(GetParam());
  const at::Tensor grad = numbers.Normal({140, 48}).to(GetParam());
  const Results plain = RunOps(shape, qkv, grad);
  AttentionShape documents = shape;
  documents.documents = true;
  const Results one = RunOps(documents, qkv, grad, StartsOf({{70}, {70}}, 70));
  ExpectSameBits(plain, one);
}

// The document and the sequence begin at other places of their blocks of keys and of rows.
TEST_P(AttentionTest, ALaterDocumentHasItsOwnSequencesBits) {
  constexpr int64_t kBefore = 320;  // whole vectors of every instruction set, whole strips of rows
  constexpr int64_t kOwn = 380;
  const AttentionShape own{1, kOwn, 4, 2, 12};
  AttentionShape both = own;
  both.length = kBefore + kOwn;
  both.documents = true;
  Numbers numbers(77);
  const at::Tensor qkv = numbers.Normal({both.length, 96}).to(GetParam());
  const at::Tensor grad = numbers.Normal({both.length, 48}).to(GetParam());
  const Results of_both = RunOps(both, qkv, grad, StartsOf({{kBefore, kOwn}}, both.length));
  const Results of_own = RunOps(own, qkv.narrow(0, kBefore, kOwn), grad.narrow(0, kBefore, kOwn));
  ExpectSameBits({.context = of_both.context.narrow(0, kBefore, kOwn),
                  .lse = of_both.lse.narrow(-1, kBefore, kOwn).contiguous().view_as(of_own.lse),
                  .grad_qkv = of_both.grad_qkv.narrow(0, kBefore, kOwn)},
                 of_own);
}

TEST_P(AttentionTest, RefusesStartsThatDoNotFitTheShape) {
  AttentionShape shape{2, 4, 1, 1, 4};
  const at::Tensor qkv = Numbers(76).Normal({8, 12}).to(GetParam());
  const at::Tensor grad = qkv.narrow(1, 0, 4).contiguous();
  const at::Tensor starts = StartsOf({{4}, {4}}, 4);
  EXPECT_THROW(RunOps(shape, qkv, grad, starts), std::invalid_argument);
  shape.documents = true;
  EXPECT_THROW(RunOps(shape, qkv, grad), std::invalid_argument);
  EXPECT_THROW(RunOps(shape, qkv, grad, starts.narrow(1, 0, 3)), std::invalid_argument);
  EXPECT_THROW(RunOps(shape, qkv, grad, starts.narrow(0, 0, 1)), std::invalid_argument);
  EXPECT_THROW(RunOps(shape, qkv, grad, starts.to(at::kInt)), std::invalid_argument);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Numbers numbers(72);
  for (const int64_t length : {40, 300}) {
    const AttentionShape shape{1, length, 1, 1, 8};
    const at::Tensor qkv = (numbers.Normal({length, 24}) * 100).to(GetParam());
    const Results r = RunOps(shape, qkv, numbers.Normal({length, 8}).to(GetParam()));
    // An exponential is off by what its score is off by, of which the largest are 10^4 and more.
    EXPECT_LE(RelativeError(r.context, Reference(shape, qkv.to(at::kDouble)).first),
              10 * Tolerance(GetParam()));
    EXPECT_TRUE(r.grad_qkv.isfinite().all().item<bool>());
  }
}

TEST_P(AttentionTest, NanInOneSequenceStaysInIt) {
  const AttentionShape shape{2, 20, 2, 1, 4};
  Numbers numbers(73);
  at::Tensor qkv = numbers.Normal({40, 16}).to(GetParam());
  qkv[3][1] = std::numeric_limits<double>::quiet_NaN();
  const Results r = RunOps(shape, qkv, numbers.Normal({40, 8}).to(GetParam()));
  EXPECT_TRUE(r.context[3].isnan().any().item<bool>());
  EXPECT_TRUE(r.context.narrow(0, 20, 20).isfinite().all().item<bool>());
  EXPECT_TRUE(r.grad_qkv.narrow(0, 20, 20).isfinite().all().item<bool>());
}

TEST_P(AttentionTest, RefusesTooLittleWorkMemory) {
  const AttentionShape shape{1, 4, 1, 1, 4};
  const at::Tensor qkv = FilledWithNan({4, 12}, GetParam());
  at::Tensor context = FilledWithNan({4, 4}, GetParam());
  at::Tensor lse = FilledWithNan({4}, StatisticsOf(GetParam()));
  const WorkMemory work(64, at::kCPU);
  EXPECT_THROW(CpuOperations().Attention(shape, qkv, /*documents=*/{}, context, lse, work)(),
               std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
