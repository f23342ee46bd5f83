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

#include <algorithm>
#include <vector>

#include "ops/mixer_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

// What a scan reads, as numbers that the type holds, and the gradient of what it writes.
struct ScanNumbers {
  ScanNumbers(const ScanShape& s, at::ScalarType type, uint64_t seed) {
    Numbers numbers(seed);
    const auto random = [&](const std::vector<int64_t>& shape) {
      return Leaf(Rounded(numbers.Normal(shape), type));
    };
    xbc = random({s.tokens(), s.channels()});
    steps = random({s.tokens(), s.heads});
    const auto random_statistics = [&] {
      return Leaf(Rounded(numbers.Normal({s.heads}), StatisticsOf(type)));
    };
    dt_bias = random_statistics();
    a_log = random_statistics();
    d = random_statistics();
    grad_y = Rounded(numbers.Normal({s.tokens(), s.inner()}), type);
  }

  at::Tensor xbc;
  at::Tensor steps;
  at::Tensor dt_bias;
  at::Tensor a_log;
  at::Tensor d;
  at::Tensor grad_y;
};

// The recurrence, token by token, in double. starts: the first row of each row's document, or empty.
at::Tensor PlainScan(const ScanShape& s, const ScanNumbers& in, const std::vector<int64_t>& starts = {}) {
  const at::Tensor dt = at::softplus(in.steps + in.dt_bias).clamp_min(s.least_step);
  const at::Tensor decay = at::exp(-dt * in.a_log.exp());
  const int64_t share = s.heads / s.groups;
  const auto vectors = [&](int64_t first) {  // [tokens, H, N]
    return in.xbc.narrow(1, first, s.groups * s.state)
        .view({s.tokens(), s.groups, s.state})
        .repeat_interleave(share, 1);
  };
  const at::Tensor x = in.xbc.narrow(1, 0, s.inner()).view({s.tokens(), s.heads, s.head_dim});
  const at::Tensor b = vectors(s.inner());
  const at::Tensor c = vectors(s.inner() + s.groups * s.state);
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    at::Tensor state = at::zeros({s.heads, s.head_dim, s.state}, at::kDouble);
    for (int64_t i = 0; i < s.length; ++i) {
      const int64_t t = sequence * s.length + i;
      if (!starts.empty() && starts[t] == i) {
        state = at::zeros({s.heads, s.head_dim, s.state}, at::kDouble);
      }
      state = state * decay[t].view({s.heads, 1, 1}) +
              at::bmm((x[t] * dt[t].unsqueeze(1)).unsqueeze(2), b[t].unsqueeze(1));
      const at::Tensor y = at::bmm(state, c[t].unsqueeze(2)).squeeze(2) + x[t] * in.d.unsqueeze(1);
      rows.push_back(y.reshape({s.inner()}));
    }
  }
  return at::stack(rows);
}

struct ScanResult {
  at::Tensor y;
  at::Tensor xbc;
  at::Tensor steps;
  at::Tensor dt_bias;
  at::Tensor a_log;
  at::Tensor d;
};

// Forward and backward of the operations. Steps are columns of a wider matrix, as in a model.
ScanResult Scanned(const ScanShape& s, const ScanNumbers& numbers, at::ScalarType type,
                   const std::vector<int64_t>& starts = {}) {
  const Operations& ops = CpuOperations();
  const auto of = [&](const at::Tensor& tensor) { return tensor.detach().to(type); };
  const auto none = [](const std::vector<int64_t>& shape, at::ScalarType of) {
    return FilledWithNan(shape, of);
  };
  const at::Tensor wide = none({s.tokens(), s.heads + 3}, type);
  wide.narrow(1, 2, s.heads).copy_(numbers.steps.detach());
  const at::Tensor xbc = of(numbers.xbc);
  const at::ScalarType statistics = StatisticsOf(type);
  const at::Tensor dt_bias = numbers.dt_bias.detach().to(statistics);
  const at::Tensor a_log = numbers.a_log.detach().to(statistics);
  const at::Tensor d = numbers.d.detach().to(statistics);
  const at::Tensor grad_y = of(numbers.grad_y);
  at::Tensor documents;
  if (!starts.empty()) {
    documents = at::zeros({s.sequences, s.length}, at::kLong);
    std::copy(starts.begin(), starts.end(), documents.data_ptr<int64_t>());
  }
  const ScanInputs in{.xbc = xbc,
                      .steps = wide.narrow(1, 2, s.heads),
                      .dt_bias = dt_bias,
                      .a_log = a_log,
                      .d = d,
                      .documents = starts.empty() ? Array() : Array(documents)};
  at::Tensor states = none({s.kept()}, statistics);
  ScanResult result{.y = none({s.tokens(), s.inner()}, type),
                    .xbc = none({s.tokens(), s.channels()}, type),
                    .steps = none({s.tokens(), s.heads + 1}, type).narrow(1, 1, s.heads),
                    .dt_bias = none({s.heads}, statistics),
                    .a_log = none({s.heads}, statistics),
                    .d = none({s.heads}, statistics)};
  const auto bytes = static_cast<int64_t>(at::elementSize(type));
  ops.StateScan(s, in, result.y, states,
                WorkMemory(StateScanWorkBytes(DeviceKind::kCpu, s, bytes), at::kCPU))();
  ops.StateScanBackward(s, in, states, grad_y, result.xbc, result.steps, result.dt_bias, result.a_log,
                        result.d,
                        WorkMemory(StateScanBackwardWorkBytes(DeviceKind::kCpu, s, bytes), at::kCPU))();
  return result;
}

// Gradients are sums over a state's numbers, over tokens, and of products that cancel: with a slack.
void ExpectMatches(const ScanResult& result, const ScanNumbers& in, const at::Tensor& y,
                   at::ScalarType type) {
  const double tolerance = 4 * Tolerance(type);
  EXPECT_LE(RelativeError(result.y, y), tolerance);
  EXPECT_LE(RelativeError(result.xbc, in.xbc.grad()), tolerance);
  EXPECT_LE(RelativeError(result.steps, in.steps.grad()), tolerance);
  EXPECT_LE(RelativeError(result.dt_bias, in.dt_bias.grad()), tolerance);
  EXPECT_LE(RelativeError(result.a_log, in.a_log.grad()), tolerance);
  EXPECT_LE(RelativeError(result.d, in.d.grad()), tolerance);
}

class StateScanTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, StateScanTest, AllTypes());

TEST_P(StateScanTest, MatchesAutogradOfTheRecurrenceForEveryChunk) {
  const at::ScalarType type = GetParam();
  for (const int64_t length : {1, 7, 64, 257}) {
    ScanShape s{
        .sequences = 2, .length = length, .heads = 4, .head_dim = 3, .groups = 2, .state = 5, .chunk = 1};
    const ScanNumbers in(s, type, 31 + static_cast<uint64_t>(length));
    const at::Tensor y = PlainScan(s, in);
    y.backward(in.grad_y);
    for (const int64_t chunk : {1, 2, 3, 16, 64, 100, 128, 256}) {
      SCOPED_TRACE(testing::Message() << length << " tokens in chunks of " << chunk);
      s.chunk = chunk;
      ExpectMatches(Scanned(s, in, type), in, y, type);
    }
  }
}

TEST_P(StateScanTest, AStateIsAsWideAsAnyNumberOfLanes) {
  const at::ScalarType type = GetParam();
  for (const int64_t state : {1, 2, 8, 16, 33, 64}) {
    SCOPED_TRACE(testing::Message() << state << " numbers of state");
    const ScanShape s{
        .sequences = 1, .length = 20, .heads = 2, .head_dim = 2, .groups = 1, .state = state, .chunk = 8};
    const ScanNumbers in(s, type, 47);
    const at::Tensor y = PlainScan(s, in);
    y.backward(in.grad_y);
    ExpectMatches(Scanned(s, in, type), in, y, type);
  }
}

// Documents begin within chunks, at their first token, and hold one token alone.
TEST_P(StateScanTest, ADocumentBeginsWithoutAState) {
  const at::ScalarType type = GetParam();
  ScanShape s{.sequences = 2, .length = 12, .heads = 2, .head_dim = 2, .groups = 1, .state = 3, .chunk = 4};
  const std::vector<int64_t> starts = {0, 0, 0, 3, 4, 4, 4, 4, 8, 8, 10, 10,
                                       0, 1, 1, 1, 1, 1, 6, 6, 6, 6, 6,  6};
  const ScanNumbers in(s, type, 53);
  const at::Tensor y = PlainScan(s, in, starts);
  y.backward(in.grad_y);
  for (const int64_t chunk : {1, 4, 5, 12}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    s.chunk = chunk;
    ExpectMatches(Scanned(s, in, type, starts), in, y, type);
  }
}

TEST_P(StateScanTest, AStepIsNeverShorterThanTheLeast) {
  const at::ScalarType type = GetParam();
  const ScanShape s{.sequences = 1,
                    .length = 30,
                    .heads = 3,
                    .head_dim = 2,
                    .groups = 3,
                    .state = 4,
                    .chunk = 7,
                    .least_step = 0.5};
  const ScanNumbers in(s, type, 59);
  const at::Tensor y = PlainScan(s, in);
  y.backward(in.grad_y);
  ExpectMatches(Scanned(s, in, type), in, y, type);
  EXPECT_TRUE((in.steps.grad() == 0).any().item<bool>()) << "no step is shorter";
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
