// SPDX-License-Identifier: Apache-2.0
#include "ops/gated_delta.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/delta_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

// Gates are columns of wider matrices.
class GatedDeltaTest : public AgainstAutogradTest {
 protected:
  // Draws the inputs, and what autograd makes of the recurrence. starts: the first row of each row's
  // document, or empty.
  void Draw(const DeltaShape& s, const std::vector<int64_t>& starts = {}) {
    q_ = RandomLeaf({s.tokens(), s.keys()});
    k_ = RandomLeaf({s.tokens(), s.keys()});
    v_ = RandomLeaf({s.tokens(), s.values()});
    ba_ = RandomLeaf({s.tokens(), 2 * s.value_heads});
    dt_bias_ = StatisticsLeaf({s.value_heads});
    a_log_ = StatisticsLeaf({s.value_heads});
    grad_y_ = Random({s.tokens(), s.values()});
    documents_ = DocumentsOf(starts, s.sequences, s.length);
    expected_ = Recurrence(s, starts);
    expected_.backward(grad_y_);
  }

  // Gradients are sums over a state's numbers, over tokens, and of products that cancel: with a slack.
  void ExpectMatches(const DeltaShape& s) const {
    const int64_t gates = 2 * s.value_heads;
    const at::Tensor wide = Nan({s.tokens(), gates + 3});
    wide.narrow(1, 2, gates).copy_(ba_.detach());
    const at::Tensor q = Typed(q_);
    const at::Tensor k = Typed(k_);
    const at::Tensor v = Typed(v_);
    const at::Tensor dt_bias = TypedStatistics(dt_bias_);
    const at::Tensor a_log = TypedStatistics(a_log_);
    const DeltaInputs in{.q = q,
                         .k = k,
                         .v = v,
                         .ba = wide.narrow(1, 2, gates),
                         .dt_bias = dt_bias,
                         .a_log = a_log,
                         .documents = documents_};
    const auto bytes = static_cast<int64_t>(at::elementSize(type_));
    const at::Tensor y = Nan({s.tokens(), s.values()});
    const at::Tensor states = NanStatistics({s.kept()});
    ops_.GatedDelta(s, in, y, states, WorkMemory(ops_, GatedDeltaWorkBytes(DeviceKind::kCpu, s, bytes)))();
    const at::Tensor grad_q = Nan({s.tokens(), s.keys()});
    const at::Tensor grad_k = Nan({s.tokens(), s.keys()});
    const at::Tensor grad_v = Nan({s.tokens(), s.values()});
    const at::Tensor grad_ba = Nan({s.tokens(), gates + 1}).narrow(1, 1, gates);
    const at::Tensor grad_dt_bias = NanStatistics({s.value_heads});
    const at::Tensor grad_a_log = NanStatistics({s.value_heads});
    ops_.GatedDeltaBackward(
        s, in, states, Typed(grad_y_),
        {.q = grad_q, .k = grad_k, .v = grad_v, .ba = grad_ba, .dt_bias = grad_dt_bias, .a_log = grad_a_log},
        WorkMemory(ops_, GatedDeltaBackwardWorkBytes(DeviceKind::kCpu, s, bytes)))();
    EXPECT_TRUE(Near(y, expected_, 4));
    EXPECT_TRUE(Near(grad_q, q_.grad(), 4));
    EXPECT_TRUE(Near(grad_k, k_.grad(), 4));
    EXPECT_TRUE(Near(grad_v, v_.grad(), 4));
    EXPECT_TRUE(Near(grad_ba, ba_.grad(), 4));
    EXPECT_TRUE(Near(grad_dt_bias, dt_bias_.grad(), 4));
    EXPECT_TRUE(Near(grad_a_log, a_log_.grad(), 4));
  }

 private:
  // Token by token, in double.
  at::Tensor Recurrence(const DeltaShape& s, const std::vector<int64_t>& starts) const {
    const at::Tensor ba = ba_.view({s.tokens(), s.key_heads, 2, s.share()});
    const at::Tensor beta = at::sigmoid(ba.select(2, 0).reshape({s.tokens(), s.value_heads}));
    const at::Tensor a = ba.select(2, 1).reshape({s.tokens(), s.value_heads});
    const at::Tensor decay = at::exp(-a_log_.exp() * at::softplus(a + dt_bias_));
    const auto of_length_one = [&](const at::Tensor& rows) {  // [tokens, Hv, Dk, 1]
      const at::Tensor heads = rows.view({s.tokens(), s.key_heads, s.key_dim});
      return (heads * (heads.square().sum(-1, /*keepdim=*/true) + kDeltaNormEpsilon).rsqrt())
          .repeat_interleave(s.share(), 1)
          .unsqueeze(3);
    };
    const at::Tensor q = of_length_one(q_) / std::sqrt(static_cast<double>(s.key_dim));
    const at::Tensor k = of_length_one(k_);
    const at::Tensor v = v_.view({s.tokens(), s.value_heads, 1, s.value_dim});
    std::vector<at::Tensor> rows;
    at::Tensor state;
    for (int64_t t = 0; t < s.tokens(); ++t) {
      if (t % s.length == 0 || (!starts.empty() && starts[t] == t % s.length)) {
        state = at::zeros({s.value_heads, s.key_dim, s.value_dim}, at::kDouble);
      }
      state = state * decay[t].view({s.value_heads, 1, 1});
      const at::Tensor missed = v[t] - (state * k[t]).sum(1, /*keepdim=*/true);
      state = state + k[t] * (beta[t].view({s.value_heads, 1, 1}) * missed);
      rows.push_back((state * q[t]).sum(1).reshape({s.values()}));
    }
    return at::stack(rows);
  }

  at::Tensor q_;
  at::Tensor k_;
  at::Tensor v_;
  at::Tensor ba_;
  at::Tensor dt_bias_;
  at::Tensor a_log_;
  at::Tensor grad_y_;
  at::Tensor documents_;
  at::Tensor expected_;
};
INSTANTIATE_TEST_SUITE_P(Types, GatedDeltaTest, AllTypes());

TEST_P(GatedDeltaTest, MatchesAutogradOfTheRecurrenceForEveryChunk) {
  for (const int64_t length : {2, 7, 64, 257}) {
    DeltaShape s{.sequences = 2,
                 .length = length,
                 .key_heads = 2,
                 .value_heads = 4,
                 .key_dim = 5,
                 .value_dim = 3,
                 .chunk = 1};
    Draw(s);
    for (const int64_t chunk : {1, 2, 3, 16, 64, 100, 128, 256}) {
      SCOPED_TRACE(testing::Message() << length << " tokens in chunks of " << chunk);
      s.chunk = chunk;
      ExpectMatches(s);
    }
  }
}

// But for 1: such a query divided by its length is 1 or -1, and has hardly a gradient.
TEST_P(GatedDeltaTest, AKeyFillsAnyNumberOfLanes) {
  for (const int64_t key_dim : {2, 3, 8, 16, 33, 64}) {
    SCOPED_TRACE(testing::Message() << "keys of " << key_dim);
    const DeltaShape s{.sequences = 1,
                       .length = 20,
                       .key_heads = 1,
                       .value_heads = 3,
                       .key_dim = key_dim,
                       .value_dim = 2,
                       .chunk = 8};
    Draw(s);
    ExpectMatches(s);
  }
}

// Documents begin within chunks, at their first token, and hold one token alone.
TEST_P(GatedDeltaTest, ADocumentBeginsWithoutAState) {
  DeltaShape s{.sequences = 2,
               .length = 12,
               .key_heads = 1,
               .value_heads = 2,
               .key_dim = 3,
               .value_dim = 2,
               .chunk = 4};
  Draw(s, {0, 0, 0, 3, 4, 4, 4, 4, 8, 8, 10, 10, 0, 1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 6});
  for (const int64_t chunk : {1, 4, 5, 12}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    s.chunk = chunk;
    ExpectMatches(s);
  }
}

// Of Qwen3-Next: tensor cores pass states on in registers, and read rounded ones.
TEST(GatedDeltaWorkTest, MemoryIsPlannedForWhatIsComputed) {
  const DeltaShape s{.sequences = 2,
                     .length = 4096,
                     .key_heads = 16,
                     .value_heads = 32,
                     .key_dim = 128,
                     .value_dim = 128,
                     .chunk = 64};
  const int64_t states = Pieces(s) * s.state();
  EXPECT_LT(GatedDeltaWorkBytes(DeviceKind::kGpu, s, 2), 72 << 20);
  EXPECT_LT(GatedDeltaBackwardWorkBytes(DeviceKind::kGpu, s, 2),
            (2 * states + 4 * s.tokens() * s.values()) * 2);
  EXPECT_GT(GatedDeltaWorkBytes(DeviceKind::kGpu, s, 4), states * 4);
  EXPECT_GT(GatedDeltaBackwardWorkBytes(DeviceKind::kGpu, s, 4), 2 * states * 4);
}

TEST(GatedDeltaRefusalTest, HeadsThatDoNotDivideAreNamed) {
  const DeltaShape s{.sequences = 1,
                     .length = 2,
                     .key_heads = 2,
                     .value_heads = 3,
                     .key_dim = 2,
                     .value_dim = 2,
                     .chunk = 7};
  const at::Tensor any = at::zeros({2, 6});
  try {
    CpuOperations().GatedDelta(
        s, {.q = any, .k = any, .v = any, .ba = any, .dt_bias = any, .a_log = any, .documents = {}}, any, any,
        {});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "2 key heads do not divide 3 value heads");
  }
}

}  // namespace
}  // namespace tandem::ops
