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

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/delta_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

// What the recurrence reads, as numbers that the type holds, and the gradient of what it writes.
struct DeltaNumbers {
  DeltaNumbers(const DeltaShape& s, at::ScalarType type, uint64_t seed) {
    Numbers numbers(seed);
    const auto random = [&](const std::vector<int64_t>& shape, at::ScalarType of) {
      return Leaf(Rounded(numbers.Normal(shape), of));
    };
    q = random({s.tokens(), s.keys()}, type);
    k = random({s.tokens(), s.keys()}, type);
    v = random({s.tokens(), s.values()}, type);
    ba = random({s.tokens(), 2 * s.value_heads}, type);
    dt_bias = random({s.value_heads}, StatisticsOf(type));
    a_log = random({s.value_heads}, StatisticsOf(type));
    grad_y = Rounded(numbers.Normal({s.tokens(), s.values()}), type);
  }

  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor ba;
  at::Tensor dt_bias;
  at::Tensor a_log;
  at::Tensor grad_y;
};

// The recurrence, token by token, in double. starts: the first row of each row's document, or empty.
at::Tensor PlainDelta(const DeltaShape& s, const DeltaNumbers& in, const std::vector<int64_t>& starts = {}) {
  const at::Tensor ba = in.ba.view({s.tokens(), s.key_heads, 2, s.share()});
  const at::Tensor beta = at::sigmoid(ba.select(2, 0).reshape({s.tokens(), s.value_heads}));
  const at::Tensor a = ba.select(2, 1).reshape({s.tokens(), s.value_heads});
  const at::Tensor decay = at::exp(-in.a_log.exp() * at::softplus(a + in.dt_bias));
  const auto of_length_one = [&](const at::Tensor& rows) {  // [tokens, Hv, Dk, 1]
    const at::Tensor heads = rows.view({s.tokens(), s.key_heads, s.key_dim});
    return (heads * (heads.square().sum(-1, /*keepdim=*/true) + kDeltaNormEpsilon).rsqrt())
        .repeat_interleave(s.share(), 1)
        .unsqueeze(3);
  };
  const at::Tensor q = of_length_one(in.q) / std::sqrt(static_cast<double>(s.key_dim));
  const at::Tensor k = of_length_one(in.k);
  const at::Tensor v = in.v.view({s.tokens(), s.value_heads, 1, s.value_dim});
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    at::Tensor state;
    for (int64_t i = 0; i < s.length; ++i) {
      const int64_t t = sequence * s.length + i;
      if (i == 0 || (!starts.empty() && starts[t] == i)) {
        state = at::zeros({s.value_heads, s.key_dim, s.value_dim}, at::kDouble);
      }
      state = state * decay[t].view({s.value_heads, 1, 1});
      const at::Tensor missed = v[t] - (state * k[t]).sum(1, /*keepdim=*/true);
      state = state + k[t] * (beta[t].view({s.value_heads, 1, 1}) * missed);
      rows.push_back((state * q[t]).sum(1).reshape({s.values()}));
    }
  }
  return at::stack(rows);
}

struct DeltaResult {
  at::Tensor y;
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor ba;
  at::Tensor dt_bias;
  at::Tensor a_log;
};

// Forward and backward of the operations. Gates are columns of wider matrices.
DeltaResult Computed(const DeltaShape& s, const DeltaNumbers& numbers, at::ScalarType type,
                     const std::vector<int64_t>& starts = {}) {
  const Operations& ops = CpuOperations();
  const auto of = [&](const at::Tensor& tensor, at::ScalarType to) { return tensor.detach().to(to); };
  const at::ScalarType statistics = StatisticsOf(type);
  const at::Tensor wide = FilledWithNan({s.tokens(), 2 * s.value_heads + 3}, type);
  wide.narrow(1, 2, 2 * s.value_heads).copy_(numbers.ba.detach());
  const at::Tensor q = of(numbers.q, type);
  const at::Tensor k = of(numbers.k, type);
  const at::Tensor v = of(numbers.v, type);
  const at::Tensor dt_bias = of(numbers.dt_bias, statistics);
  const at::Tensor a_log = of(numbers.a_log, statistics);
  const at::Tensor grad_y = of(numbers.grad_y, type);
  at::Tensor documents;
  if (!starts.empty()) {
    documents = at::zeros({s.sequences, s.length}, at::kLong);
    std::copy(starts.begin(), starts.end(), documents.data_ptr<int64_t>());
  }
  const DeltaInputs in{.q = q,
                       .k = k,
                       .v = v,
                       .ba = wide.narrow(1, 2, 2 * s.value_heads),
                       .dt_bias = dt_bias,
                       .a_log = a_log,
                       .documents = starts.empty() ? Array() : Array(documents)};
  at::Tensor states = FilledWithNan({s.kept()}, statistics);
  DeltaResult result{
      .y = FilledWithNan({s.tokens(), s.values()}, type),
      .q = FilledWithNan({s.tokens(), s.keys()}, type),
      .k = FilledWithNan({s.tokens(), s.keys()}, type),
      .v = FilledWithNan({s.tokens(), s.values()}, type),
      .ba = FilledWithNan({s.tokens(), 2 * s.value_heads + 1}, type).narrow(1, 1, 2 * s.value_heads),
      .dt_bias = FilledWithNan({s.value_heads}, statistics),
      .a_log = FilledWithNan({s.value_heads}, statistics)};
  const auto bytes = static_cast<int64_t>(at::elementSize(type));
  ops.GatedDelta(s, in, result.y, states,
                 WorkMemory(GatedDeltaWorkBytes(DeviceKind::kCpu, s, bytes), at::kCPU))();
  ops.GatedDeltaBackward(s, in, states, grad_y,
                         {.q = result.q,
                          .k = result.k,
                          .v = result.v,
                          .ba = result.ba,
                          .dt_bias = result.dt_bias,
                          .a_log = result.a_log},
                         WorkMemory(GatedDeltaBackwardWorkBytes(DeviceKind::kCpu, s, bytes), at::kCPU))();
  return result;
}

// Gradients are sums over a state's numbers, over tokens, and of products that cancel: with a slack.
void ExpectMatches(const DeltaResult& result, const DeltaNumbers& in, const at::Tensor& y,
                   at::ScalarType type) {
  const double tolerance = 4 * Tolerance(type);
  EXPECT_LE(RelativeError(result.y, y), tolerance);
  EXPECT_LE(RelativeError(result.q, in.q.grad()), tolerance);
  EXPECT_LE(RelativeError(result.k, in.k.grad()), tolerance);
  EXPECT_LE(RelativeError(result.v, in.v.grad()), tolerance);
  EXPECT_LE(RelativeError(result.ba, in.ba.grad()), tolerance);
  EXPECT_LE(RelativeError(result.dt_bias, in.dt_bias.grad()), tolerance);
  EXPECT_LE(RelativeError(result.a_log, in.a_log.grad()), tolerance);
}

class GatedDeltaTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, GatedDeltaTest, AllTypes());

TEST_P(GatedDeltaTest, MatchesAutogradOfTheRecurrenceForEveryChunk) {
  const at::ScalarType type = GetParam();
  for (const int64_t length : {2, 7, 64, 257}) {
    DeltaShape s{.sequences = 2,
                 .length = length,
                 .key_heads = 2,
                 .value_heads = 4,
                 .key_dim = 5,
                 .value_dim = 3,
                 .chunk = 1};
    const DeltaNumbers in(s, type, 31 + static_cast<uint64_t>(length));
    const at::Tensor y = PlainDelta(s, in);
    y.backward(in.grad_y);
    for (const int64_t chunk : {1, 2, 3, 16, 64, 100, 128, 256}) {
      SCOPED_TRACE(testing::Message() << length << " tokens in chunks of " << chunk);
      s.chunk = chunk;
      ExpectMatches(Computed(s, in, type), in, y, type);
    }
  }
}

// But for 1: such a query divided by its length is 1 or -1, and has hardly a gradient.
TEST_P(GatedDeltaTest, AKeyIsAsWideAsAnyNumberOfLanes) {
  const at::ScalarType type = GetParam();
  for (const int64_t key_dim : {2, 3, 8, 16, 33, 64}) {
    SCOPED_TRACE(testing::Message() << "keys of " << key_dim);
    const DeltaShape s{.sequences = 1,
                       .length = 20,
                       .key_heads = 1,
                       .value_heads = 3,
                       .key_dim = key_dim,
                       .value_dim = 2,
                       .chunk = 8};
    const DeltaNumbers in(s, type, 47);
    const at::Tensor y = PlainDelta(s, in);
    y.backward(in.grad_y);
    ExpectMatches(Computed(s, in, type), in, y, type);
  }
}

// Documents begin within chunks, at their first token, and hold one token alone.
TEST_P(GatedDeltaTest, ADocumentBeginsWithoutAState) {
  const at::ScalarType type = GetParam();
  DeltaShape s{.sequences = 2,
               .length = 12,
               .key_heads = 1,
               .value_heads = 2,
               .key_dim = 3,
               .value_dim = 2,
               .chunk = 4};
  const std::vector<int64_t> starts = {0, 0, 0, 3, 4, 4, 4, 4, 8, 8, 10, 10,
                                       0, 1, 1, 1, 1, 1, 6, 6, 6, 6, 6,  6};
  const DeltaNumbers in(s, type, 53);
  const at::Tensor y = PlainDelta(s, in, starts);
  y.backward(in.grad_y);
  for (const int64_t chunk : {1, 4, 5, 12}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk);
    s.chunk = chunk;
    ExpectMatches(Computed(s, in, type, starts), in, y, type);
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
