// SPDX-License-Identifier: Apache-2.0
#include "ops/state_scan.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/mixer_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

// Steps are columns of wider matrices, as in a model.
class StateScanTest : public AgainstAutogradTest {
 protected:
  // Draws the inputs of a scan, and what autograd makes of its recurrence. starts: the first row of each
  // row's document, or empty.
  void Draw(const ScanShape& s, const std::vector<int64_t>& starts = {}) {
    xbc_ = RandomLeaf({s.tokens(), s.channels()});
    steps_ = RandomLeaf({s.tokens(), s.heads});
    dt_bias_ = StatisticsLeaf({s.heads});
    a_log_ = StatisticsLeaf({s.heads});
    d_ = StatisticsLeaf({s.heads});
    grad_y_ = Random({s.tokens(), s.inner()});
    documents_ = DocumentsOf(starts, s.sequences, s.length);
    expected_ = Recurrence(s, starts);
    expected_.backward(grad_y_);
  }

  // Gradients are sums over a state's numbers, over tokens, and of products that cancel: with a slack.
  void ExpectMatches(const ScanShape& s) const {
    const at::Tensor wide = Nan({s.tokens(), s.heads + 3});
    wide.narrow(1, 2, s.heads).copy_(steps_.detach());
    const at::Tensor xbc = Typed(xbc_);
    const at::Tensor dt_bias = TypedStatistics(dt_bias_);
    const at::Tensor a_log = TypedStatistics(a_log_);
    const at::Tensor d = TypedStatistics(d_);
    const ScanInputs in{.xbc = xbc,
                        .steps = wide.narrow(1, 2, s.heads),
                        .dt_bias = dt_bias,
                        .a_log = a_log,
                        .d = d,
                        .documents = documents_};
    const auto bytes = static_cast<int64_t>(at::elementSize(type_));
    const at::Tensor y = Nan({s.tokens(), s.inner()});
    const at::Tensor states = NanStatistics({s.kept()});
    ops_.StateScan(s, in, y, states, WorkMemory(ops_, StateScanWorkBytes(DeviceKind::kCpu, s, bytes)))();
    const at::Tensor grad_xbc = Nan({s.tokens(), s.channels()});
    const at::Tensor grad_steps = Nan({s.tokens(), s.heads + 1}).narrow(1, 1, s.heads);
    const at::Tensor grad_dt_bias = NanStatistics({s.heads});
    const at::Tensor grad_a_log = NanStatistics({s.heads});
    const at::Tensor grad_d = NanStatistics({s.heads});
    ops_.StateScanBackward(s, in, states, Typed(grad_y_), grad_xbc, grad_steps, grad_dt_bias, grad_a_log,
                           grad_d,
                           WorkMemory(ops_, StateScanBackwardWorkBytes(DeviceKind::kCpu, s, bytes)))();
    EXPECT_TRUE(Near(y, expected_, 4));
    EXPECT_TRUE(Near(grad_xbc, xbc_.grad(), 4));
    EXPECT_TRUE(Near(grad_steps, steps_.grad(), 4));
    EXPECT_TRUE(Near(grad_dt_bias, dt_bias_.grad(), 4));
    EXPECT_TRUE(Near(grad_a_log, a_log_.grad(), 4));
    EXPECT_TRUE(Near(grad_d, d_.grad(), 4));
  }

  at::Tensor xbc_;
  at::Tensor steps_;
  at::Tensor dt_bias_;
  at::Tensor a_log_;
  at::Tensor d_;
  at::Tensor grad_y_;
  at::Tensor documents_;
  at::Tensor expected_;

 private:
  // Token by token, in double.
  at::Tensor Recurrence(const ScanShape& s, const std::vector<int64_t>& starts) const {
    const at::Tensor dt = at::softplus(steps_ + dt_bias_).clamp_min(s.least_step);
    const at::Tensor decay = at::exp(-dt * a_log_.exp());
    const auto vectors = [&](int64_t first) {  // [tokens, H, N]
      return xbc_.narrow(1, first, s.groups * s.state)
          .view({s.tokens(), s.groups, s.state})
          .repeat_interleave(s.heads / s.groups, 1);
    };
    const at::Tensor x = xbc_.narrow(1, 0, s.inner()).view({s.tokens(), s.heads, s.head_dim});
    const at::Tensor b = vectors(s.inner());
    const at::Tensor c = vectors(s.inner() + s.groups * s.state);
    std::vector<at::Tensor> rows;
    at::Tensor state;
    for (int64_t t = 0; t < s.tokens(); ++t) {
      if (t % s.length == 0 || (!starts.empty() && starts[t] == t % s.length)) {
        state = at::zeros({s.heads, s.head_dim, s.state}, at::kDouble);
      }
      state = state * decay[t].view({s.heads, 1, 1}) +
              at::bmm((x[t] * dt[t].unsqueeze(1)).unsqueeze(2), b[t].unsqueeze(1));
      const at::Tensor y = at::bmm(state, c[t].unsqueeze(2)).squeeze(2) + x[t] * d_.unsqueeze(1);
      rows.push_back(y.reshape({s.inner()}));
    }
    return at::stack(rows);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, StateScanTest, AllTypes());

TEST_P(StateScanTest, MatchesAutogradOfTheRecurrenceForEveryChunk) {
  for (const int64_t length : {1, 7, 64, 257}) {
    ScanShape s{
        .sequences = 2, .length = length, .heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = 1};
    Draw(s);
    for (const int64_t chunk : {1, 2, 3, 16, 64, 100, 128, 256}) {
      SCOPED_TRACE(testing::Message() << length << " tokens in chunks of " << chunk);
      s.chunk = chunk;
      ExpectMatches(s);
    }
  }
}

TEST_P(StateScanTest, AStateFillsAnyNumberOfLanes) {
  for (const int64_t state : {1, 2, 8, 16, 33, 64}) {
    SCOPED_TRACE(testing::Message() << state << " numbers of state");
    const ScanShape s{
        .sequences = 1, .length = 20, .heads = 2, .head_dim = 2, .groups = 1, .state = state, .chunk = 8};
    Draw(s);
    ExpectMatches(s);
  }
}

// Documents begin within chunks, at their first token, and hold one token alone.
TEST_P(StateScanTest, ADocumentBeginsWithoutAState) {
  ScanShape s{.sequences = 2, .length = 12, .heads = 2, .head_dim = 2, .groups = 1, .state = 3, .chunk = 4};
  Draw(s, {0, 0, 0, 3, 4, 4, 4, 4, 8, 8, 10, 10, 0, 1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 6});
  for (const int64_t chunk : {1, 4, 5, 12}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    s.chunk = chunk;
    ExpectMatches(s);
  }
}

TEST_P(StateScanTest, AStepIsNeverShorterThanTheLeast) {
  const ScanShape s{.sequences = 1,
                    .length = 30,
                    .heads = 3,
                    .head_dim = 2,
                    .groups = 3,
                    .state = 4,
                    .chunk = 7,
                    .least_step = 0.5};
  Draw(s);
  ExpectMatches(s);
  EXPECT_TRUE((steps_.grad() == 0).any().item<bool>()) << "no step is shorter";
}

// Of Nemotron-H-8B: tensor cores pass states on in registers, and read rounded ones.
TEST(StateScanWorkTest, MemoryIsPlannedForWhatIsComputed) {
  const ScanShape s{
      .sequences = 2, .length = 4096, .heads = 128, .head_dim = 64, .groups = 8, .state = 128, .chunk = 128};
  const int64_t states = Pieces(s) * s.inner() * s.state;
  constexpr int64_t kSums = 9 << 20;
  EXPECT_LT(StateScanWorkBytes(DeviceKind::kGpu, s, 2), kSums);
  EXPECT_LT(StateScanBackwardWorkBytes(DeviceKind::kGpu, s, 2), 2 * states * 2 + kSums);
  EXPECT_GT(StateScanWorkBytes(DeviceKind::kGpu, s, 4), states * 4);
  EXPECT_GT(StateScanBackwardWorkBytes(DeviceKind::kGpu, s, 4), 2 * states * 4);
}

TEST(StateScanRefusalTest, ASizeThatDoesNotFitIsNamed) {
  const ScanShape s{
      .sequences = 1, .length = 2, .heads = 3, .head_dim = 2, .groups = 2, .state = 4, .chunk = 7};
  const at::Tensor any = at::zeros({2, 22});
  try {
    CpuOperations().StateScan(
        s, {.xbc = any, .steps = any, .dt_bias = any, .a_log = any, .d = any, .documents = {}}, any, any, {});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "2 groups do not divide 3 heads");
  }
}

}  // namespace
}  // namespace tandem::ops
