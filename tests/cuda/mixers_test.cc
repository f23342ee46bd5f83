// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "ops/cuda/operations.h"
#include "ops/delta_work.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"
#include "tests/cuda/against_cpu.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using test::WorkMemory;

// The operations of Mamba-2 mixers and of gated delta nets.
class CudaMixersTest : public test::AgainstCpuTest {
 protected:
  // Documents of so many tokens, cut by the ends of sequences; 0: none.
  static at::Tensor Documents(int64_t sequences, int64_t length, int64_t tokens) {
    at::Tensor starts = at::zeros({sequences, length}, at::kLong);
    for (int64_t i = 0; tokens > 0 && i < sequences * length; ++i) {
      starts.data_ptr<int64_t>()[i] = i % length / tokens * tokens;
    }
    return starts;
  }
  // With columns more, which stay as they are.
  at::Tensor NormalWide(int64_t rows, int64_t columns, int64_t more = 2) {
    return Normal({rows, columns + more});
  }
  static Array ArrayOfDocuments(const at::Tensor& starts, int64_t tokens) {
    return tokens > 0 ? Array(starts) : Array();
  }
};

TEST_P(CudaMixersTest, CausalConv) {
  struct Case {
    int64_t sequences;
    int64_t length;
    int64_t channels;
    int64_t width;
    int64_t document;
    int64_t column;  // of 16: at the beginning of a pack, of which a thread then has one, and not a channel
    bool biased = true;
  };
  for (const auto& [sequences, length, channels, width, document, column, biased] :
       std::vector<Case>{{1, 1, 1, 4, 0, 2},
                         {2, 70, 33, 4, 0, 1},
                         {3, 64, 300, 2, 0, 1},
                         {2, 131, 40, 8, 0, 1},
                         {2, 131, 40, 4, 5, 1},
                         {2, 131, 48, 4, 5, 16},
                         {1, 2, 64, 3, 0, 16},
                         {2, 200, 2064, 4, 70, 16},
                         {3, 130, 32, 8, 3, 16},
                         {2, 100, 300, 4, 0, 0, /*biased=*/false}}) {
    SCOPED_TRACE(testing::Message() << sequences << " x " << length << " x " << channels << ", width "
                                    << width << ", documents of " << document << ", column " << column
                                    << (biased ? "" : ", without a bias"));
    Compare(
        {NormalWide(sequences * length, channels, 16), Normal({channels, width}), Normal({channels}),
         Normal({sequences * length, channels}), Documents(sequences, length, document)},
        {NanOf({sequences * length, channels}), NormalWide(sequences * length, channels, 16),
         NanStatistics({channels, width}), biased ? NanStatistics({channels}) : NormalStatistics({channels})},
        [&, column = column](const Operations& ops, const Tensors& in, Tensors& out) {
          const at::Tensor x = in[0].narrow(1, column, channels);
          const Array starts = ArrayOfDocuments(in[4], document);
          const Array bias = biased ? Array(in[2]) : Array();
          const WorkMemory work(ops, CausalConvBackwardWorkBytes(ops.kind(), sequences, length, channels,
                                                                 width, x.element_size()));
          ops.CausalConv(sequences, x, starts, in[1], bias, out[0])();
          ops.CausalConvBackward(sequences, x, starts, in[1], bias, in[3], out[1].narrow(1, column, channels),
                                 out[2], biased ? Array(out[3]) : Array(), work)();
        });
  }
}

TEST_P(CudaMixersTest, GatedNorm) {
  // Of the last, the sums of a group do not fit into shared memory.
  for (const auto& [rows, columns, groups, column] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{{1, 8, 1, 3},
                                                                   {33, 96, 3, 3},
                                                                   {700, 256, 2, 1},
                                                                   {5, 4096, 8, 3},
                                                                   {700, 1024, 2, 16},
                                                                   {3, 16384, 1, 16}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " in " << groups << ", column " << column);
    Compare(
        {Normal({rows, columns}), Normal({rows, columns}), NormalWide(rows, columns, 16), Normal({columns})},
        {NanOf({rows, columns}), NanOf({rows, columns}), NormalWide(rows, columns, 16),
         NanStatistics({columns})},
        [&, column = column](const Operations& ops, const Tensors& in, Tensors& out) {
          const at::Tensor gate = in[2].narrow(1, column, columns);
          const WorkMemory work(ops,
                                GatedNormBackwardWorkBytes(ops.kind(), rows, columns, gate.element_size()));
          ops.GatedNorm(in[1], gate, in[3], groups, 1e-5, out[0])();
          ops.GatedNormBackward(in[0], in[1], gate, in[3], groups, 1e-5, out[1],
                                out[2].narrow(1, column, columns), out[3], work)();
        },
        /*slack=*/4);
  }
}

TEST_P(CudaMixersTest, SquaredRelu) {
  Compare({Normal({37, 41}), Normal({37, 41})}, {NanOf({37, 41}), NanOf({37, 41}), NanOf({37, 41})},
          [&](const Operations& ops, const Tensors& in, Tensors& out) {
            ops.SquaredRelu(in[0], out[0])();
            ops.SquaredReluBackward(in[0], in[1], out[1], out[2])();
          });
}

// Pieces of 64 tokens that end with a chunk, within one, and with the sequence.
TEST_P(CudaMixersTest, StateScan) {
  struct Case {
    ScanShape shape;  // sequences, length, heads, head_dim, groups, state, chunk, least_step
    int64_t document = 0;
  };
  for (const auto& [s, document] : std::vector<Case>{{{1, 1, 1, 1, 1, 1, 1}},
                                                     {{2, 40, 4, 5, 2, 6, 7}},
                                                     {{2, 300, 4, 16, 1, 32, 100}},
                                                     {{1, 517, 2, 64, 2, 128, 256}},
                                                     {{1, 200, 2, 80, 1, 70, 64}},
                                                     {{2, 300, 6, 64, 2, 64, 100, 0.5}, 70},
                                                     {{1, 517, 3, 64, 1, 64, 100}},
                                                     {{2, 190, 4, 64, 1, 128, 64}, 9},
                                                     {{2, 200, 2, 8, 1, 16, 128}, 50},
                                                     {{1, 150, 2, 8, 2, 16, 64}, 64},
                                                     {{1, 100, 2, 8, 1, 16, 32, 0.5}}}) {
    SCOPED_TRACE(testing::Message() << s.sequences << " x " << s.length << ", " << s.heads << " heads of "
                                    << s.head_dim << ", states of " << s.state << ", chunks of " << s.chunk
                                    << ", documents of " << document);
    const Tensors in = {Normal({s.tokens(), s.channels()}),
                        Normal({s.tokens(), s.heads + 3}),
                        NormalStatistics({s.heads}),
                        NormalStatistics({s.heads}),
                        NormalStatistics({s.heads}),
                        Normal({s.tokens(), s.inner()}),
                        Documents(s.sequences, s.length, document)};
    const auto scan = [&s = s, document = document](const Operations& ops, const Tensors& given,
                                                    const at::Tensor& y, const at::Tensor& states) {
      const ScanInputs inputs{.xbc = given[0],
                              .steps = given[1].narrow(1, 2, s.heads),
                              .dt_bias = given[2],
                              .a_log = given[3],
                              .d = given[4],
                              .documents = ArrayOfDocuments(given[6], document)};
      const WorkMemory work(ops, StateScanWorkBytes(ops.kind(), s, given[0].element_size()));
      ops.StateScan(s, inputs, y, states, work)();
      return inputs;
    };
    // The states that are kept are as exact as float on tensor cores, too.
    Compare(
        in, {NanOf({s.tokens(), s.inner()}), NanStatistics({s.kept()})},
        [&](const Operations& ops, const Tensors& given, Tensors& out) { scan(ops, given, out[0], out[1]); },
        /*slack=*/16);
    Compare(
        in,
        {NanOf({s.tokens(), s.channels()}), NormalWide(s.tokens(), s.heads), NanStatistics({s.heads}),
         NanStatistics({s.heads}), NanStatistics({s.heads})},
        [&, &s = s](const Operations& ops, const Tensors& given, Tensors& out) {
          const at::Tensor y = at::empty_like(given[5]);
          const at::Tensor states = at::empty({s.kept()}, out[2].options());
          const ScanInputs inputs = scan(ops, given, y, states);
          const WorkMemory work(ops, StateScanBackwardWorkBytes(ops.kind(), s, given[0].element_size()));
          ops.StateScanBackward(s, inputs, states, given[5], out[0], out[1].narrow(1, 1, s.heads), out[2],
                                out[3], out[4], work)();
        },
        /*slack=*/16, /*repeats=*/2,
        /*statistics_slack=*/ScansOnTensorCores(s, in[0].element_size()) ? 400 : 16);
  }
}

TEST_P(CudaMixersTest, NormGate) {
  for (const auto& [rows, columns, together] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 8, 1}, {33, 37, 3}, {5000, 128, 2}, {8, 300, 8}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", " << together << " gates a row");
    const int64_t gates = together * columns;
    Compare(
        {Normal({rows, columns}), Normal({rows, columns}), Normal({rows / together, gates + 3}),
         Normal({columns})},
        {NanOf({rows, columns}), NanOf({rows, columns}), NormalWide(rows / together, gates),
         NanStatistics({columns})},
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          const at::Tensor gate = in[2].narrow(1, 3, gates);
          const WorkMemory work(ops,
                                NormGateBackwardWorkBytes(ops.kind(), rows, columns, gate.element_size()));
          ops.NormGate(in[1], gate, in[3], 1e-6, out[0])();
          ops.NormGateBackward(in[0], in[1], gate, in[3], 1e-6, out[1], out[2].narrow(1, 1, gates), out[3],
                               work)();
        },
        /*slack=*/4);
  }
}

// The same pieces; value channels in several tiles, and documents that begin within pieces.
TEST_P(CudaMixersTest, GatedDelta) {
  struct Case {
    DeltaShape shape;  // sequences, length, key_heads, value_heads, key_dim, value_dim, chunk
    int64_t document = 0;
    double faster = 0;  // added to a_log: states are forgotten sooner than is usual
  };
  for (const auto& [s, document, faster] : std::vector<Case>{{{1, 2, 1, 1, 2, 1, 1}},
                                                             {{2, 40, 2, 4, 6, 5, 7}},
                                                             {{2, 300, 2, 4, 32, 16, 100}},
                                                             {{1, 517, 1, 2, 128, 128, 64}},
                                                             {{1, 200, 2, 2, 70, 80, 256}},
                                                             {{2, 200, 1, 2, 16, 8, 128}, 50},
                                                             {{1, 150, 1, 2, 16, 8, 64}, 64},
                                                             {{1, 300, 2, 4, 32, 16, 64}, 0, /*faster=*/2},
                                                             {{2, 300, 2, 6, 64, 128, 100}, 70},
                                                             {{2, 190, 1, 1, 128, 64, 64}, 9},
                                                             {{1, 520, 1, 4, 128, 128, 256}}}) {
    SCOPED_TRACE(testing::Message() << s.sequences << " x " << s.length << ", " << s.key_heads << " and "
                                    << s.value_heads << " heads of " << s.key_dim << " and " << s.value_dim
                                    << ", chunks of " << s.chunk << ", documents of " << document
                                    << ", faster by " << faster);
    const int64_t gates = 2 * s.value_heads;
    Compare(
        {Normal({s.tokens(), s.keys()}), Normal({s.tokens(), s.keys()}), Normal({s.tokens(), s.values()}),
         Normal({s.tokens(), gates + 3}), NormalStatistics({s.value_heads}),
         NormalStatistics({s.value_heads}) + faster, Normal({s.tokens(), s.values()}),
         Documents(s.sequences, s.length, document)},
        {NanOf({s.tokens(), s.values()}), NanStatistics({s.kept()}), NanOf({s.tokens(), s.keys()}),
         NanOf({s.tokens(), s.keys()}), NanOf({s.tokens(), s.values()}), NormalWide(s.tokens(), gates),
         NanStatistics({s.value_heads}), NanStatistics({s.value_heads})},
        [&s = s, document = document, gates](const Operations& ops, const Tensors& in, Tensors& out) {
          const DeltaInputs inputs{.q = in[0],
                                   .k = in[1],
                                   .v = in[2],
                                   .ba = in[3].narrow(1, 2, gates),
                                   .dt_bias = in[4],
                                   .a_log = in[5],
                                   .documents = ArrayOfDocuments(in[7], document)};
          const auto bytes = static_cast<int64_t>(in[0].element_size());
          const at::DeviceType on = in[0].device().type();
          ops.GatedDelta(s, inputs, out[0], out[1],
                         WorkMemory(GatedDeltaWorkBytes(ops.kind(), s, bytes), on))();
          ops.GatedDeltaBackward(s, inputs, out[1], in[6],
                                 {.q = out[2],
                                  .k = out[3],
                                  .v = out[4],
                                  .ba = out[5].narrow(1, 1, gates),
                                  .dt_bias = out[6],
                                  .a_log = out[7]},
                                 WorkMemory(GatedDeltaBackwardWorkBytes(ops.kind(), s, bytes), on))();
        },
        /*slack=*/4, /*repeats=*/2,
        // Kept states and sums of gradients are of products of bfloat16.
        /*statistics_slack=*/DeltasOnTensorCores(s, at::elementSize(GetParam())) ? 1000 : 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMixersTest, testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

}  // namespace
}  // namespace tandem::ops
