// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda/operations.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/row_work.h"
#include "ops/sparse_work.h"
#include "ops/tokens.h"
#include "tests/cuda/against_cpu.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr int kSparseRepeats = 50;

at::Tensor UnsetIntegers(const std::vector<int64_t>& shape) { return at::full(shape, -7, at::kLong); }

class CudaSparseOperationsTest : public AgainstCpuTest {
 protected:
  // [tokens, k]: different experts, ascending; every seventh choice is dropped.
  at::Tensor Choices(int64_t tokens, int64_t experts, int64_t k, bool drops) {
    const at::Tensor order = numbers_.Normal({tokens, experts}).argsort(int64_t{1}).narrow(1, 0, k);
    at::Tensor chosen = std::get<0>(order.sort(int64_t{1})).contiguous();
    for (int64_t slot = 0; drops && slot < chosen.numel(); slot += 7) {
      chosen.view({-1})[slot] = -1;
    }
    return chosen;
  }

  // Of experts with that many rows, [E + 1].
  static at::Tensor BeginsOf(const std::vector<int64_t>& counts) {
    std::vector<int64_t> begins = {0};
    for (const int64_t rows : counts) {
      begins.push_back(begins.back() + rows);
    }
    return at::tensor(begins, at::kLong);
  }
};

struct RouterCase {
  std::string name;
  RouterConfig config;
  bool biased = false;
  int64_t tokens = 37;
};

std::vector<RouterCase> Routers() {
  constexpr RouterScore kSigmoid = RouterScore::kSigmoid;
  return {{"softmax", {.experts = 5, .top_k = 2}},
          {"normalised", {.experts = 128, .top_k = 8, .normalize = true, .scale = 2.5}},
          {"one expert of one", {.experts = 1, .top_k = 1}},
          {"more experts than lanes, all chosen", {.experts = 40, .top_k = 40, .normalize = true}},
          {"the most experts, all chosen", {.experts = 1024, .top_k = 1024}, false, 3},
          {"every expert a group of its own",
           {.experts = 1024, .top_k = 512, .groups = 1024, .groups_per_token = 512, .best_of_group = 1},
           false,
           3},
          {"sigmoid", {.experts = 33, .top_k = 3, .score = kSigmoid}},
          {"grouped",
           {.experts = 256,
            .top_k = 8,
            .score = kSigmoid,
            .normalize = true,
            .groups = 8,
            .groups_per_token = 4,
            .scale = 2.5},
           true},
          {"grouped softmax", {.experts = 24, .top_k = 4, .groups = 6, .groups_per_token = 2}, false, 301},
          {"groups by their best",
           {.experts = 160, .top_k = 6, .groups = 8, .groups_per_token = 3, .best_of_group = 1, .scale = 16},
           false,
           301},
          {"dealt", {.experts = 128, .top_k = 8, .normalize = true, .deals = true}, false, 301},
          {"dealt, most of them",
           {.experts = 40, .top_k = 33, .score = kSigmoid, .normalize = true, .deals = true},
           false,
           301}};
}

TEST_P(CudaSparseOperationsTest, Route) {
  for (const RouterCase& router : Routers()) {
    SCOPED_TRACE(router.name);
    const RouterConfig& config = router.config;
    const int64_t tokens = router.tokens;
    const at::Tensor none = UnsetIntegers({1});
    Compare(
        {NormalStatistics({tokens, config.experts}),
         router.biased ? NormalStatistics({config.experts}) : none, NormalStatistics({tokens, config.top_k})},
        {UnsetIntegers({tokens, config.top_k}), NanStatistics({tokens, config.top_k}),
         NanStatistics({tokens, config.experts})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          ops.Route(config, in[0], router.biased ? in[1] : at::Tensor(), out[0], out[1])();
          at::Tensor kept = out[0].clone();
          kept.select(0, 0).select(0, 0).fill_(-1);  // a choice that was dropped has no gradient
          ops.RouteBackward(config, in[0], out[0], kept, in[2], out[2])();
        },
        2, kSparseRepeats);
  }
}

TEST_P(CudaSparseOperationsTest, FirstOfEqualLogitsWinsAndNanShows) {
  at::Tensor logits = at::zeros({3, 70}, StatisticsOf(GetParam()));
  logits.select(0, 1).narrow(0, 33, 3).fill_(1e4);
  logits.select(0, 2)[5].fill_(std::numeric_limits<double>::infinity());
  at::Tensor chosen = UnsetIntegers({3, 3}).to(at::kCUDA);
  at::Tensor probabilities = NanStatistics({3, 3}).to(at::kCUDA);
  CudaOperations().Route({.experts = 70, .top_k = 3, .normalize = true}, logits.to(at::kCUDA), {}, chosen,
                         probabilities)();
  EXPECT_EQ(ToVector(chosen.cpu()), (std::vector<int64_t>{0, 1, 2, 33, 34, 35, 0, 1, 2}));
  EXPECT_TRUE(probabilities[2].isnan().all().item<bool>());
  EXPECT_FALSE(probabilities.narrow(0, 0, 2).isnan().any().item<bool>());
}

TEST_P(CudaSparseOperationsTest, CountsAndBiases) {
  const at::Tensor chosen = Choices(1000, 130, 6, /*drops=*/true);
  Compare(
      {chosen, numbers_.Integers({3, 260}, 1000).to(at::kDouble)},
      {FilledWithNan({130}, at::kDouble), FilledWithNan({1}, at::kDouble), NormalStatistics({130}),
       NormalStatistics({130})},
      [](const Operations& ops, const Tensors& in, Tensors& out) {
        const at::TensorOptions flag = in[0].options().dtype(at::kBool);
        ops.CountTokens(in[0], out[0], out[1])();
        const at::Tensor tokens = in[1].narrow(1, 130, 130);  // rows are apart
        ops.UpdateRouterBias(tokens, at::ones({1}, flag), 0.125, out[2])();
        ops.UpdateRouterBias(tokens, at::zeros({1}, flag), 0.125, out[3])();
      },
      2, kSparseRepeats);
}

TEST_P(CudaSparseOperationsTest, RouterLosses) {
  for (const RouterCase& router : Routers()) {
    SCOPED_TRACE(router.name);
    const RouterConfig& config = router.config;
    const int64_t tokens = 36;
    const RouterLossConfig losses{.sequence_length = 12, .balance = 0.75, .z = 0.25};
    at::Tensor logits = NormalStatistics({tokens, config.experts});
    logits.narrow(0, 0, 2) -= 1000;  // all their sigmoids underflow
    at::Tensor targets = at::ones({3, 12}, at::kLong);
    targets.narrow(1, 5, 4).fill_(kNotCounted);
    Compare(
        {logits, targets},
        {FilledWithNan({2}, at::kDouble), NormalStatistics({tokens, config.experts}),
         NormalStatistics({tokens, config.experts})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          const WorkMemory work(ops, RouterLossesWorkBytes(ops.kind(), tokens, 3, config.experts));
          ops.RouterLosses(config, losses, in[0], /*counts=*/{}, out[0], work)();
          ops.RouterLossesBackward(config, losses, in[0], /*counts=*/{}, /*targets=*/{}, out[1], work)();
          ops.RouterLossesBackward(config, {.sequence_length = 12, .balance = 1}, in[0],
                                   /*counts=*/{}, /*targets=*/in[1], out[2], work)();
        },
        2, kSparseRepeats);
  }
}

// Two rounds of counts of three ranks, of which this one is the second.
TEST_P(CudaSparseOperationsTest, RouterLossesOfTheGlobalBatch) {
  for (const RouterCase& router : Routers()) {
    SCOPED_TRACE(router.name);
    const RouterConfig& config = router.config;
    const int64_t tokens = 36;
    const RouterLossConfig losses{.sequence_length = tokens, .balance = 0.75, .z = 0.25};
    Compare(
        {NormalStatistics({tokens, config.experts}),
         numbers_.Integers({3, config.experts}, 1000).to(at::kDouble)},
        {FilledWithNan({3, config.experts}, at::kDouble), FilledWithNan({config.experts}, at::kDouble),
         FilledWithNan({config.experts}, at::kDouble), FilledWithNan({2}, at::kDouble),
         NormalStatistics({tokens, config.experts})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          const WorkMemory work(ops, RouterLossesWorkBytes(ops.kind(), tokens, 1, config.experts));
          out[0].copy_(in[1]);
          at::Tensor own = out[0].select(0, 1);
          ops.CountLargest(config, in[0], own)();
          ops.MeanCounts(out[0], tokens * config.top_k, /*continues=*/false, out[1], out[2])();
          ops.MeanCounts(in[1], tokens * config.top_k, /*continues=*/true, out[1], out[2])();
          ops.RouterLosses(config, losses, in[0], out[2], out[3], work)();
          ops.RouterLossesBackward(config, losses, in[0], out[2], /*targets=*/{}, out[4], work)();
        },
        2, kSparseRepeats);
  }
}

TEST_P(CudaSparseOperationsTest, DropOverflow) {
  for (const DropPolicy policy : {DropPolicy::kProbability, DropPolicy::kPosition}) {
    for (const int64_t capacity : {1, 60, 400}) {
      SCOPED_TRACE(capacity);
      at::Tensor probabilities = NormalStatistics({400, 3});
      if (policy == DropPolicy::kProbability && capacity < 400) {  // last of all, and dropped
        probabilities.select(0, 11).fill_(std::numeric_limits<double>::quiet_NaN());
      }
      Compare(
          {Choices(400, 6, 3, /*drops=*/false)}, {UnsetIntegers({400, 3}), probabilities},
          [&](const Operations& ops, const Tensors& in, Tensors& out) {
            ops.DropOverflow(policy, capacity, 6, in[0], out[0], out[1],
                             WorkMemory(ops, DropWorkBytes(ops.kind(), 1200, 6)))();
          },
          2, kSparseRepeats);
    }
  }
}

// Stretches of slots that are full, and others; rows of whole packs, and others; windows that cut an expert.
TEST_P(CudaSparseOperationsTest, RowsOfExperts) {
  for (const auto& [tokens, experts, k, columns] : std::vector<std::array<int64_t, 4>>{
           {0, 5, 2, 8}, {1, 1, 1, 3}, {300, 7, 3, 20}, {64, 128, 8, 256}, {1025, 40, 5, 7}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << k << " of " << experts << " experts");
    const int64_t slots = tokens * k;
    const int64_t window = (slots + 2) / 2;
    const at::Tensor chosen = Choices(tokens, experts, k, tokens > 1);
    Compare(
        {chosen, Normal({tokens, columns}), Normal({window, columns})},
        {UnsetIntegers({experts}), UnsetIntegers({slots}), UnsetIntegers({experts + 1}),
         UnsetIntegers({experts + 1}), Normal({window, columns}), Normal({window, columns}),
         NanOf({tokens, columns}), Normal({slots, 1}), UnsetIntegers({experts + 1})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          ops.PlanRows(in[0], /*chunk=*/0, out[0], out[1],
                       WorkMemory(ops, SortWorkBytes(ops.kind(), slots, experts)))();
          ops.PlanWindow(out[0], 0, window, out[2])();
          ops.PlanWindow(out[0], window, window, out[3])();
          ops.Permute(in[1], out[1], 0, out[4])();
          ops.Permute(in[1], out[1], window, out[5], out[3])();
          ops.Unpermute(in[2], out[1], 0, /*add=*/false, out[6])();
          ops.Unpermute(in[2], out[1], window, /*add=*/true, out[6], out[3])();
          ops.PlanWindow(out[0], 2 * window, window, out[8])();  // no rows: nothing is moved
          ops.Permute(in[1], out[1], 2 * window, out[5], out[8])();
          ops.Unpermute(in[2], out[1], 2 * window, /*add=*/true, out[6], out[8])();
          at::Tensor by_row = in[2].narrow(0, 0, 1).narrow(1, 0, 1).expand({slots, 1}).contiguous();
          ops.Unpermute(by_row, out[1], 0, /*add=*/true, out[7])();
        },
        2, kSparseRepeats);
  }
}

// Every expert has as many rows, some of which no slot is in.
TEST_P(CudaSparseOperationsTest, RowsOfPaddedExperts) {
  for (const auto& [tokens, experts, k] :
       std::vector<std::array<int64_t, 3>>{{1, 4, 2}, {300, 7, 3}, {777, 64, 8}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << k << " of " << experts << " experts");
    const int64_t slots = tokens * k;
    const at::Tensor chosen = Choices(tokens, experts, k, tokens > 1);
    Compare(
        {chosen}, {UnsetIntegers({experts}), UnsetIntegers({slots}), UnsetIntegers({experts + 1})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          ops.PlanRows(in[0], /*chunk=*/tokens + 5, out[0], out[1],
                       WorkMemory(ops, SortWorkBytes(ops.kind(), slots, experts)))();
          ops.PlanWindow(out[0], 0, experts * (tokens + 5), out[2])();
        },
        2, kSparseRepeats);
  }
}

TEST_P(CudaSparseOperationsTest, RowsOfRanks) {
  for (const auto& [tokens, ranks, local, k] :
       std::vector<std::array<int64_t, 4>>{{1, 1, 4, 2}, {300, 2, 4, 3}, {777, 8, 16, 8}, {70, 4, 2, 1}}) {
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens to " << ranks << " ranks, exact " << exact);
      const at::Tensor chosen = Choices(tokens, ranks * local, k, tokens > 1);
      const int64_t width = std::min(k, local);
      const int64_t rows = ranks * tokens;
      Compare(
          {chosen, NormalStatistics({tokens, k}), NormalStatistics({rows, width})},
          {UnsetIntegers({ranks}), UnsetIntegers({tokens, ranks}), UnsetIntegers({rows, width}),
           NanStatistics({rows, width}), NanStatistics({tokens, k}), NormalStatistics({tokens, k})},
          [&](const Operations& ops, const Tensors& in, Tensors& out) {
            ops.PlanSends(in[0], local, exact ? 0 : tokens, out[0], out[1],
                          WorkMemory(ops, SortWorkBytes(ops.kind(), tokens * ranks, ranks)))();
            ops.SendSlots(in[0], in[1], out[1], local, out[2], out[3])();
            ops.CollectSlots(in[2], in[0], out[1], local, /*add=*/false, out[4])();
            ops.CollectSlots(in[2], in[0], out[1], local, /*add=*/true, out[5])();
          },
          2, kSparseRepeats);
    }
  }
}

// Rows of whole packs, and others; experts of many tiles, of parts of one, and of no row; rows that no expert
// has. Weights' gradients are also summed into float, and added to. Both where the rows are known on the host
// and where they are read on the GPU.
TEST_P(CudaSparseOperationsTest, GroupedLinear) {
  struct Case {
    std::vector<int64_t> counts;
    int64_t inputs;
    int64_t outputs;
    int64_t more = 0;  // rows behind the last expert's
  };
  for (const Case& c : std::vector<Case>{{{7}, 24, 10},
                                         {{3, 0, 5, 1}, 17, 9, 4},
                                         {{0, 0, 300}, 264, 136, 7},
                                         {{0, 0}, 16, 8, 2},
                                         {{128, 129, 1, 64, 0, 200}, 320, 200},
                                         {{1, 0, 2, 0}, 8, 8, 1},
                                         {{256, 0, 384, 513, 0}, 256, 512, 200},
                                         {std::vector<int64_t>(70, 3), 40, 48}}) {
    const auto experts = static_cast<int64_t>(c.counts.size());
    const int64_t rows = std::accumulate(c.counts.begin(), c.counts.end(), c.more);
    SCOPED_TRACE(testing::Message() << experts << " experts, " << rows << " rows, " << c.inputs << " -> "
                                    << c.outputs);
    const at::Tensor begins = BeginsOf(c.counts);
    for (const bool known : {false, true}) {
      SCOPED_TRACE(known ? "known rows" : "rows that the GPU reads");
      const at::Tensor x = Normal({rows, c.inputs});
      const at::Tensor grad_y = Normal({rows, c.outputs});
      for (const at::Tensor& of_rows : {x, grad_y}) {  // no expert has these
        of_rows.narrow(0, rows - c.more, c.more).fill_(std::numeric_limits<double>::quiet_NaN());
      }
      Compare(
          {x, Normal({experts * c.outputs, c.inputs}), grad_y},
          {Normal({rows, c.outputs}), Normal({rows, c.inputs}), NanOf({experts * c.outputs, c.inputs}),
           Normal({experts * c.outputs, c.inputs}), NanStatistics({experts * c.outputs, c.inputs}),
           NormalStatistics({experts * c.outputs, c.inputs})},
          [&](const Operations& ops, const Tensors& in, Tensors& out) {
            const WorkMemory work(ops, std::max(kTileBytes, GroupedWorkBytes(ops.kind(), 2, known)));
            const at::Tensor at = known ? begins : begins.to(in[0].device());
            ops.GroupedLinear(at, in[0], in[1], out[0], work)();
            ops.GroupedLinearBackwardInput(at, in[2], in[1], out[1], work)();
            for (const int i : {2, 3, 4, 5}) {
              ops.GroupedLinearBackwardWeight(at, in[2], in[0], /*add=*/i % 2 == 1, out[i], work)();
            }
          },
          2, kSparseRepeats);
    }
  }
}

TEST_P(CudaSparseOperationsTest, SwiGluOfExperts) {
  for (const auto& [there, rows, inner] :
       std::vector<std::array<int64_t, 3>>{{0, 3, 8}, {5, 9, 45}, {40, 40, 2560}}) {
    SCOPED_TRACE(testing::Message() << there << " of " << rows << " x " << inner);
    const at::Tensor begins = BeginsOf({0, there});
    Compare(
        {Normal({rows, 2 * inner}), NormalStatistics({rows})},
        {Normal({rows, inner}), Normal({rows, inner}), Normal({rows, 2 * inner}), NormalStatistics({rows})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          const at::Tensor at = begins.to(in[0].device());
          ops.SwiGlu(in[0], out[0], in[1], at)();
          ops.SwiGluBackward(in[0], out[1], out[2], out[1], in[1], out[3], at)();
        },
        2, kSparseRepeats);
  }
}

// A gate of each token, and the MLP that it multiplies, which computes all rows; more rows than blocks.
TEST_P(CudaSparseOperationsTest, TokenGate) {
  for (const auto& [rows, columns, inner] :
       std::vector<std::array<int64_t, 3>>{{1, 7, 3}, {1200, 2048, 512}, {33, 1000, 45}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    Compare(
        {Normal({rows, columns}), Normal({columns}), NormalStatistics({rows}), Normal({rows, 2 * inner}),
         NormalStatistics({rows})},
        {NanStatistics({rows}), Normal({rows, columns}), NanStatistics({columns}), NanOf({rows, inner}),
         Normal({rows, inner}), NanOf({rows, 2 * inner}), NanStatistics({rows})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          const WorkMemory work(
              ops, RmsNormBackwardWorkBytes(ops.kind(), in[0].size(0), in[0].size(1), in[0].element_size()));
          ops.TokenGate(in[0], in[1], out[0])();
          ops.TokenGateBackward(in[2], in[0], in[1], out[0], out[1], /*add_weight=*/false, out[2], work)();
          ops.SwiGlu(in[3], out[3], in[4])();
          ops.SwiGluBackward(in[3], out[4], out[5], out[4], in[4], out[6])();
        },
        4, kSparseRepeats);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaSparseOperationsTest, AllTypes());

}  // namespace
}  // namespace tandem::ops
