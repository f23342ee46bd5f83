// SPDX-License-Identifier: Apache-2.0
// What operations do where there is nothing to compute: nothing but zeros in what they write. On the CPU and
// on the GPU (tested_operations.h).
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "ops/attention_shape.h"
#include "ops/latent_shape.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/router_config.h"
#include "tests/ops/compare.h"
#include "tests/ops/tested_operations.h"

namespace tandem::ops {
namespace {

using namespace test;

class NoRowsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor Of(const std::vector<int64_t>& shape) const {
    return FilledWithNan(shape, GetParam()).to(TorchDeviceOf(ops_));
  }
  at::Tensor Statistics(const std::vector<int64_t>& shape) const {
    return FilledWithNan(shape, StatisticsOf(GetParam())).to(TorchDeviceOf(ops_));
  }
  at::Tensor Double(const std::vector<int64_t>& shape) const {
    return FilledWithNan(shape, at::kDouble).to(TorchDeviceOf(ops_));
  }
  at::Tensor Integers(const std::vector<int64_t>& shape) const {
    return at::full(shape, -7, at::TensorOptions(TorchDeviceOf(ops_)).dtype(at::kLong));
  }
  static bool IsZero(const at::Tensor& tensor) { return tensor.eq(0).all().item<bool>(); }

  const Operations& ops_ = Tested();
  const WorkMemory work_{kGpuLinearWorkBytes, TorchDeviceOf(ops_).type()};
};
INSTANTIATE_TEST_SUITE_P(Types, NoRowsTest, AllTypes());

TEST_P(NoRowsTest, ProductsAreEmptyAndWeightsGradientsZero) {
  const at::Tensor x = Of({0, 6});
  const at::Tensor weight = Of({5, 6});
  at::Tensor y = Of({0, 5});
  at::Tensor grad_x = Of({0, 6});
  at::Tensor grad_weight = Of({5, 6});
  ops_.Linear(x, weight, /*residual=*/{}, y, work_)();
  ops_.LinearBackwardInput(y, weight, /*add=*/false, grad_x, work_)();
  ops_.LinearBackwardWeight(y, x, /*add=*/false, grad_weight, work_)();
  EXPECT_TRUE(IsZero(grad_weight));
  ops_.LinearBackwardWeight(y, x, /*add=*/true, grad_weight.fill_(3), work_)();
  EXPECT_TRUE(grad_weight.eq(3).all().item<bool>());
}

TEST_P(NoRowsTest, RowsAreEmptyAndNormsGradientsZero) {
  const at::Tensor weight = Of({7});
  at::Tensor x = Of({0, 7});
  at::Tensor grad_weight = Statistics({7});
  ops_.RmsNorm(x, weight, {1e-5}, x)();
  ops_.RmsNormBackward(x, x, weight, {1e-5}, /*residual=*/{}, false, x, false, grad_weight, work_)();
  EXPECT_TRUE(IsZero(grad_weight));
  at::Tensor heads = Of({0, 8});
  for (const int64_t length : {3, 0}) {
    const at::Tensor table = Statistics({length, 2});
    ops_.Rope(table, table, 2, 4, heads)();
    ops_.RopeBackward(table, table, 2, 4, heads)();
  }
  at::Tensor activated = Of({0, 4});
  ops_.SwiGlu(heads, activated)();
  ops_.SwiGluBackward(heads, activated, heads, activated)();
}

TEST_P(NoRowsTest, HeadsAreEmptyAndTheirNormsGradientsZero) {
  at::Tensor qkv = Of({0, 4 * 6});
  const at::Tensor weight = Of({6});
  at::Tensor grad_query = Statistics({6});
  at::Tensor grad_key = Statistics({6});
  ops_.HeadNorm(qkv, /*heads=*/2, /*kv_heads=*/1, weight, weight, {1e-5}, qkv)();
  ops_.HeadNormBackward(qkv, 2, 1, weight, weight, {1e-5}, /*add_weights=*/false, qkv, grad_query, grad_key,
                        work_)();
  EXPECT_TRUE(IsZero(grad_query) && IsZero(grad_key));
  at::Tensor context = Of({0, 12});
  ops_.OutputGate(context, qkv, /*heads=*/2, context)();
  ops_.OutputGateBackward(context, context, qkv, /*heads=*/2, context, context, qkv)();
  at::Tensor gates = Statistics({0});
  at::Tensor grad_gate = Statistics({12});
  ops_.TokenGate(context, Of({12}), gates)();
  ops_.TokenGateBackward(gates, context, Of({12}), gates, context, /*add_weight=*/false, grad_gate, work_)();
  EXPECT_TRUE(IsZero(grad_gate));
  const at::Tensor bias = Of({8});
  at::Tensor grad_bias = Statistics({8});
  ops_.QkvBias(bias, bias, bias, qkv)();
  ops_.QkvBiasBackward(qkv, /*add=*/false, grad_bias, grad_bias, grad_bias, work_)();
  EXPECT_TRUE(IsZero(grad_bias));
  grad_bias = Statistics({24});
  ops_.Bias(Of({24}), qkv)();
  ops_.BiasBackward(qkv, /*add=*/false, grad_bias, work_)();
  EXPECT_TRUE(IsZero(grad_bias));
  ops_.WindowStarts(3, {}, Integers({0, 4}))();
  const LatentHeads latent{.heads = 2, .content = 4, .rotary = 2, .value = 4};
  at::Tensor query = Of({0, 2 * 6});
  at::Tensor key_value = Of({0, 2 * 8});
  at::Tensor down = Of({0, 9});
  at::Tensor heads = Of({0, 3 * 2 * latent.head_dim()});
  ops_.PackLatentHeads(latent, query, key_value, down, heads)();
  ops_.UnpackLatentHeads(latent, heads, query, key_value, down)();
}

TEST_P(NoRowsTest, TokensAreEmptyAndTheTablesGradientZero) {
  const at::Tensor tokens = Integers({0, 4});
  const at::Tensor table = Of({9, 5});
  at::Tensor output = Of({0, 5});
  at::Tensor grad_table = Of({9, 5});
  ops_.Embedding(tokens, table, output)();
  ops_.EmbeddingBackward(tokens, output, /*add=*/false, grad_table, work_)();
  EXPECT_TRUE(IsZero(grad_table));
}

TEST_P(NoRowsTest, NoSequenceHasNoAttention) {
  for (const AttentionShape& shape : {AttentionShape{0, 5, 4, 2, 8}, AttentionShape{2, 0, 4, 2, 8}}) {
    SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.length);
    const at::Tensor qkv = Of({0, 64});
    at::Tensor context = Of({0, 32});
    at::Tensor lse = Statistics({shape.sequences, 4, shape.length});
    at::Tensor grad_qkv = Of({0, 64});
    ops_.PrepareAttention(shape, qkv.element_size());
    ops_.Attention(shape, qkv, /*documents=*/{}, context, lse, work_)();
    ops_.AttentionBackward(shape, qkv, /*documents=*/{}, context, lse, context, grad_qkv, work_)();
  }
}

TEST_P(NoRowsTest, MeanLossOfNoTokensIsNan) {
  const at::Tensor targets = Integers({0, 4});
  at::Tensor logits = Of({0, 9});
  at::Tensor lse = Statistics({0});
  at::Tensor loss = Double({1}).fill_(0);
  ops_.CrossEntropy(logits, targets, lse, loss, logits)();
  EXPECT_TRUE(loss.isnan().item<bool>());
}

TEST_P(NoRowsTest, WithoutTokensExpertsGradientsAreZero) {
  const RouterConfig config{.experts = 4, .top_k = 2};
  at::Tensor logits = Statistics({0, 4});
  at::Tensor chosen = Integers({0, 2});
  at::Tensor probabilities = Statistics({0, 2});
  ops_.Route(config, logits, /*bias=*/{}, chosen, probabilities)();
  ops_.RouteBackward(config, logits, chosen, chosen, probabilities, logits)();
  at::Tensor losses = Double({2}).fill_(0);
  const RouterLossConfig terms{.sequence_length = 5, .balance = 0.01, .z = 0.001};
  ops_.RouterLosses(config, terms, logits, /*counts=*/{}, losses, work_)();
  EXPECT_TRUE(losses.isnan().all().item<bool>()) << "means of no tokens";
  ops_.RouterLossesBackward(config, terms, logits, /*counts=*/{}, /*targets=*/{}, logits, work_)();
  at::Tensor tokens = Double({4});
  at::Tensor dropped = Double({1});
  ops_.CountTokens(chosen, tokens, dropped)();
  EXPECT_TRUE(IsZero(tokens) && IsZero(dropped));
  at::Tensor counts = Integers({4});
  at::Tensor row_of = Integers({0});
  at::Tensor begins = Integers({5});
  ops_.PlanRows(chosen, /*chunk=*/0, counts, row_of, work_)();
  EXPECT_TRUE(IsZero(counts));
  // A GPU's counts are not waited for.
  EXPECT_EQ(ops_.PlanWindow(counts, 0, /*rows=*/3, begins)(), (ops_.kind() == DeviceKind::kGpu));
  EXPECT_TRUE(IsZero(begins));
  at::Tensor hidden = Of({0, 6});
  at::Tensor rows = Of({3, 6}).fill_(5);
  ops_.Permute(hidden, row_of, 0, rows)();
  ops_.Unpermute(rows, row_of, 0, /*add=*/false, hidden)();
  EXPECT_TRUE(rows.eq(5).all().item<bool>()) << "rows that no token has are left alone";
  const at::Tensor weight = Of({4 * 2, 6});
  at::Tensor grad_weight = Of({4 * 2, 6});
  at::Tensor y = Of({3, 2}).fill_(5);
  ops_.GroupedLinear(begins, rows, weight, y, work_)();
  EXPECT_TRUE(y.eq(5).all().item<bool>());
  ops_.GroupedLinearBackwardInput(begins, y, weight, rows, work_)();
  EXPECT_TRUE(rows.eq(5).all().item<bool>());
  ops_.GroupedLinearBackwardWeight(begins, y, rows, /*add=*/false, grad_weight, work_)();
  EXPECT_TRUE(IsZero(grad_weight));
}

TEST_P(NoRowsTest, NoTokenIsDroppedSentOrCounted) {
  const RouterConfig config{.experts = 4, .top_k = 2};
  const at::Tensor ranked = Integers({0, 2});
  at::Tensor chosen = Integers({0, 2});
  at::Tensor probabilities = Statistics({0, 2});
  for (const DropPolicy policy : {DropPolicy::kProbability, DropPolicy::kPosition}) {
    ops_.DropOverflow(policy, /*capacity=*/1, config.experts, ranked, chosen, probabilities, work_)();
  }
  for (const int64_t chunk : {0, 3}) {
    at::Tensor counts = Integers({2});
    at::Tensor place = Integers({0, 2});
    ops_.PlanSends(chosen, /*experts_of_a_rank=*/2, chunk, counts, place, work_)();
    EXPECT_TRUE(IsZero(counts));
    at::Tensor slots = Integers({5, 2});
    at::Tensor row_probabilities = Statistics({5, 2});
    ops_.SendSlots(chosen, probabilities, place, /*experts_of_a_rank=*/2, slots, row_probabilities)();
    EXPECT_TRUE(slots.eq(-1).all().item<bool>()) << "rows that nobody sends";
    EXPECT_TRUE(IsZero(row_probabilities));
    ops_.CollectSlots(row_probabilities, chosen, place, /*experts_of_a_rank=*/2, /*add=*/false,
                      probabilities)();
  }
  at::Tensor largest = Double({4});
  ops_.CountLargest(config, Statistics({0, 4}), largest)();
  EXPECT_TRUE(IsZero(largest));
  at::Tensor gate_up = Of({0, 6});
  at::Tensor activated = Of({0, 3});
  at::Tensor weights = Statistics({0});
  const at::Tensor begins = Integers({5}).fill_(0);
  ops_.SwiGlu(gate_up, activated, weights, begins)();
  ops_.SwiGluBackward(gate_up, activated, gate_up, activated, weights, weights, begins)();
}

}  // namespace
}  // namespace tandem::ops
