// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/operations.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/rotary_tables.h"
#include "ops/row_work.h"
#include "tests/cuda/against_cpu.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using test::FilledWithNan;
using test::RelativeError;
using test::SameBits;
using test::StatisticsOf;
using test::Tolerance;
using test::WorkMemory;

class CudaOperationsTest : public test::AgainstCpuTest {};

TEST_P(CudaOperationsTest, RmsNorm) {
  // More rows than blocks, rows of whole packs and others, more packs than a block has threads, and more sums
  // than a block has without asking, or at all: of double, or of float too.
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{33, 7},
                                                                              {33, 256},
                                                                              {1200, 1000},
                                                                              {5, 4096},
                                                                              {300, 8192},
                                                                              {3, 16384},
                                                                              {2, 6001},
                                                                              {3, 49152},
                                                                              {3, 60000}}) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns << (add ? ", added" : ""));
      Compare({Normal({rows, columns}), Normal({rows, columns}), Normal({columns}), Normal({rows, columns})},
              {NanOf({rows, columns}), add ? Normal({rows, columns}) : NanOf({rows, columns}),
               add ? NormalStatistics({columns}) : NanStatistics({columns})},
              [&](const Operations& ops, const Tensors& in, Tensors& out) {
                const WorkMemory work(ops, RmsNormBackwardWorkBytes(ops.kind(), in[1].size(0), in[1].size(1),
                                                                    in[1].element_size()));
                const NormConfig norm{.epsilon = 1e-5, .added = add ? 1.0 : 0.0};
                ops.RmsNorm(in[1], in[2], norm, out[0])();
                ops.RmsNormBackward(in[0], in[1], in[2], norm, add ? in[3] : at::Tensor(), add, out[1], add,
                                    out[2], work)();
              });
    }
  }
}

TEST_P(CudaOperationsTest, Rope) {
  for (const auto& [pairs, dim] :
       std::vector<std::pair<int64_t, int64_t>>{{5, 10}, {8, 16}, {64, 128}, {16, 128}, {8, 20}, {3, 16}}) {
    at::Tensor cosines = NanStatistics({12, pairs});
    at::Tensor sines = NanStatistics({12, pairs});
    RopeTables(10000, {}, cosines, sines);
    Compare({cosines, sines}, {Normal({36, 5 * dim}), Normal({36, 5 * dim})},
            [dim = dim](const Operations& ops, const Tensors& in, Tensors& out) {
              ops.Rope(in[0], in[1], 4, dim, out[0])();
              ops.RopeBackward(in[0], in[1], 4, dim, out[1])();
            });
  }
}

TEST_P(CudaOperationsTest, SwiGlu) {
  for (const int64_t inner : {45, 2560}) {
    Compare({Normal({19, 2 * inner}), Normal({19, inner})},
            {NanOf({19, inner}), NanOf({19, 2 * inner}), Normal({19, inner}), NanOf({19, 2 * inner}),
             NanOf({19, inner})},
            [](const Operations& ops, const Tensors& in, Tensors& out) {
              ops.SwiGlu(in[0], out[0])();
              ops.SwiGluBackward(in[0], out[2], out[1], out[2])();  // in place
              ops.SwiGluBackward(in[0], in[1], out[3], out[4])();
            });
  }
}

// Rows of whole packs, and others; ids of a few tokens, of more than a block adds up, and of many, whose
// order matters; as many tokens as a block sorts, and more; a table that is larger than it clears beside
// that.
TEST_P(CudaOperationsTest, Embedding) {
  struct Case {
    int64_t sequences;
    int64_t length;
    int64_t ids;  // among the tokens
    int64_t vocabulary;
    int64_t columns;
  };
  for (const Case& c : std::vector<Case>{{7, 100, 11, 13, 70},
                                         {7, 100, 11, 13, 1024},
                                         {5, 300, 3, 9, 264},
                                         {3, 700, 1, 2, 33},
                                         {1, 16384, 2000, 4000, 24},
                                         {3, 6001, 60, 70, 40},
                                         {2, 50, 90, 300'000, 16}}) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << c.sequences << " x " << c.length << " tokens of " << c.ids << " ids, a table of "
                   << c.vocabulary << " x " << c.columns << (add ? ", added" : ""));
      const std::vector<int64_t> table = {c.vocabulary, c.columns};
      const std::vector<int64_t> rows = {c.sequences * c.length, c.columns};
      const at::Tensor ids = numbers_.Integers({c.sequences, c.length + 1}, c.ids);
      for (const double factor : {1.0, 12.0}) {
        Compare({Normal(table), Normal(rows)},
                {NanOf(rows), add ? Normal(table) : NanOf(table),
                 add ? NormalStatistics(table) : NanStatistics(table)},
                [&](const Operations& ops, const Tensors& in, Tensors& out) {
                  const at::Tensor tokens = ids.to(in[0].device()).narrow(1, 0, c.length);
                  const WorkMemory work(ops, EmbeddingBackwardWorkBytes(ops.kind(), tokens.numel()));
                  ops.Embedding(tokens, in[0], out[0], factor)();
                  ops.EmbeddingBackward(tokens, in[1], add, out[1], work, factor)();
                  ops.EmbeddingBackward(tokens, in[1], add, out[2], work, factor)();
                });
      }
    }
  }
}

TEST_P(CudaOperationsTest, AnIdOutsideTheVocabularyGivesNoNumber) {
  const at::Tensor tokens = at::Tensor(numbers_.Integers({1, 4}, 3)).fill_(3).to(at::kCUDA);
  const at::Tensor weight = Normal({3, 8}).to(at::kCUDA);
  at::Tensor output = Normal({4, 8}).to(at::kCUDA);
  CudaOperations().Embedding(tokens, weight, output)();
  EXPECT_TRUE(std::isnan(output.sum().item<double>()));
}

TEST_P(CudaOperationsTest, AnIdOutsideTheVocabularyAddsNothing) {
  for (const int64_t tokens : {8, 20'000}) {  // that a block sorts, and more
    at::Tensor ids = at::Tensor(numbers_.Integers({1, tokens}, 1)).fill_(3);
    ids.narrow(1, 0, 3).fill_(-1);
    ids.narrow(1, 3, 1).fill_(1);
    at::Tensor table = NanOf({3, 8}).to(at::kCUDA);
    const WorkMemory work(EmbeddingBackwardWorkBytes(DeviceKind::kGpu, tokens), at::kCUDA);
    const at::Tensor grad = Normal({tokens, 8}).fill_(0.125).to(at::kCUDA);
    CudaOperations().EmbeddingBackward(ids.to(at::kCUDA), grad, /*add=*/false, table, work)();
    const at::Tensor sums = table.to(at::kDouble).sum(1).cpu();
    EXPECT_EQ(sums[0].item<double>(), 0);
    EXPECT_EQ(sums[1].item<double>(), 1);
    EXPECT_EQ(sums[2].item<double>(), 0);
  }
}

// Of rows whose bytes are whole packs of 16, and others; large enough that sums are split; and of one row.
TEST_P(CudaOperationsTest, Linear) {
  for (const auto& [tokens, inputs, outputs] : std::vector<std::array<int64_t, 3>>{
           {40, 24, 56}, {7, 33, 17}, {1, 5, 3}, {64, 2048, 96}, {1, 64, 1}, {300, 600, 520}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    Compare({Normal({tokens, inputs}), Normal({outputs, inputs}), Normal({tokens, outputs}),
             Normal({tokens, outputs})},
            {NanOf({tokens, outputs}), NanOf({tokens, inputs}), Normal({outputs, inputs}),
             NanOf({tokens, outputs}), NormalStatistics({outputs, inputs}), NanStatistics({outputs, inputs}),
             NanOf({outputs, inputs})},
            [](const Operations& ops, const Tensors& in, Tensors& out) {
              const WorkMemory work(ops, kGpuLinearWorkBytes);
              ops.Linear(in[0], in[1], /*residual=*/{}, out[0], work)();
              ops.LinearBackwardInput(in[2], in[1], /*add=*/false, out[1], work)();
              ops.LinearBackwardWeight(in[2], in[0], /*add=*/true, out[2], work)();
              ops.Linear(in[0], in[1], /*residual=*/in[3], out[3], work)();
              ops.LinearBackwardWeight(in[2], in[0], /*add=*/true, out[4], work)();
              ops.LinearBackwardWeight(in[2], in[0], /*add=*/false, out[5], work)();
              ops.LinearBackwardWeight(in[2], in[0], /*add=*/false, out[6], work)();
            });
    Compare({Normal({tokens, inputs}), Normal({outputs, inputs}), Normal({tokens, outputs})},
            {NanOf({tokens, outputs}), NanOf({tokens, inputs}), NormalStatistics({outputs, inputs})},
            [](const Operations& ops, const Tensors& in, Tensors& out) {
              const WorkMemory work(ops, kGpuLinearWorkBytes);
              ops.Linear(in[0], in[1], /*residual=*/in[2], out[0], work, /*factor=*/0.22)();
              ops.LinearBackwardInput(in[2], in[1], /*add=*/false, out[1], work, /*factor=*/0.22)();
              ops.LinearBackwardWeight(in[2], in[0], /*add=*/true, out[2], work, /*factor=*/0.22)();
            });
  }
}

TEST_P(CudaOperationsTest, LinearTakesViewsAndRefusesMissingMemory) {
  const WorkMemory work(kGpuLinearWorkBytes, at::kCUDA);
  const at::Tensor wide = Normal({5, 40});
  const at::Tensor weight = Normal({6, 16});
  const at::Tensor expected = at::mm(wide.narrow(1, 8, 16).to(at::kDouble), weight.to(at::kDouble).t());
  at::Tensor output = NanOf({5, 20}).to(at::kCUDA);
  at::Tensor columns = output.narrow(1, 4, 6);
  CudaOperations().Linear(wide.to(at::kCUDA).narrow(1, 8, 16), weight.to(at::kCUDA), {}, columns, work)();
  EXPECT_LE(RelativeError(columns.cpu(), expected), 2 * Tolerance(GetParam()));
  EXPECT_EQ(output.isnan().sum().item<int64_t>(), 5 * 14) << "wrote beside the view";

  at::Tensor none = NanOf({0, 6}).to(at::kCUDA);
  const at::Tensor no_rows = NanOf({0, 16}).to(at::kCUDA);
  EXPECT_THROW(CudaOperations().Linear(no_rows, weight, {}, none, work)(), std::invalid_argument)
      << "on the host";
  EXPECT_THROW(CudaOperations().Linear(no_rows, weight.to(at::kCUDA), {}, none, Workspace{})(),
               std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaOperationsTest, testing::Values(at::kFloat, at::kDouble, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace tandem::ops
