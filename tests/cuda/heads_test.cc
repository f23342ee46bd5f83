// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <vector>

#include "ops/cuda/operations.h"
#include "ops/latent_heads.h"
#include "ops/row_work.h"
#include "tests/cuda/against_cpu.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr int kHeadRepeats = 50;

class CudaHeadsTest : public AgainstCpuTest {};
INSTANTIATE_TEST_SUITE_P(Types, CudaHeadsTest, AllTypes());

// Heads of a token that go round within a block, and those of all tokens that go round among the blocks, at
// their begin and in the middle of a token; in each type so many that a lane has more than it copies ahead.
// Heads of one pack a lane, of several, also fewer in the last lanes, and of no whole packs; that 1, 2, 4, 8,
// 16 and 32 lanes share.
TEST_P(CudaHeadsTest, HeadNorm) {
  for (const auto& [tokens, heads, kv_heads, head_dim] :
       std::vector<std::array<int64_t, 4>>{{1, 1, 1, 2},
                                           {3, 600, 5, 16},
                                           {5, 150, 21, 32},
                                           {7, 6, 2, 40},
                                           {1100, 37, 12, 64},
                                           {9, 32, 4, 128},
                                           {1100, 5, 5, 256},
                                           {3, 130, 20, 200},
                                           {40, 3, 2, 42},
                                           {600, 9, 3, 130},
                                           {5, 2, 2, 250}}) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << ":" << kv_heads << " heads of "
                                      << head_dim << (add ? ", added" : ""));
      const int64_t width = (heads + 2 * kv_heads) * head_dim;
      const auto sums = [&] { return add ? NormalStatistics({head_dim}) : NanStatistics({head_dim}); };
      Compare(
          {Normal({tokens, width}), Normal({head_dim}), Normal({head_dim})},
          {NanOf({tokens, width}), Normal({tokens, width}), sums(), sums()},
          [&, h = heads, kv = kv_heads](const Operations& ops, const Tensors& in, Tensors& out) {
            const WorkMemory work(ops, HeadNormBackwardWorkBytes(ops.kind(), in[0].size(0), in[1].numel(),
                                                                 in[0].element_size()));
            ops.HeadNorm(in[0], h, kv, in[1], in[2], {1e-5}, out[0])();
            ops.HeadNormBackward(in[0], h, kv, in[1], in[2], {1e-5}, add, out[1], out[2], out[3], work)();
          },
          2, kHeadRepeats);
    }
  }
}

// Behind each query head is its gate, which is skipped; gates and values have no gradient here.
TEST_P(CudaHeadsTest, HeadNormOfQueriesWithGates) {
  for (const auto& [tokens, heads, kv_heads, head_dim] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 1, 2}, {1100, 37, 12, 64}, {600, 16, 2, 256}, {600, 9, 3, 130}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << ":" << kv_heads << " heads of "
                                    << head_dim);
    const int64_t width = (heads + 2 * kv_heads) * head_dim;
    const int64_t wide = width + heads * head_dim;
    Compare(
        {Normal({tokens, wide}), Normal({head_dim}), Normal({head_dim}), Normal({tokens, width})},
        {NanOf({tokens, width}), Normal({tokens, wide}), NanStatistics({head_dim}),
         NanStatistics({head_dim})},
        [&, h = heads, kv = kv_heads](const Operations& ops, const Tensors& in, Tensors& out) {
          const WorkMemory work(
              ops, HeadNormBackwardWorkBytes(ops.kind(), in[0].size(0), in[1].numel(), in[0].element_size()));
          const NormConfig norm{.epsilon = 1e-6, .added = 1};
          ops.HeadNorm(in[0], h, kv, in[1], in[2], norm, out[0])();
          ops.HeadNormBackward(in[0], h, kv, in[1], in[2], norm, /*add_weights=*/false, in[3], out[2], out[3],
                               work, out[1])();
        },
        2, kHeadRepeats);
  }
}

// Heads of whole packs and others, in rows of whole packs and others.
TEST_P(CudaHeadsTest, OutputGate) {
  for (const auto& [tokens, heads, head_dim, more] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 2, 0}, {300, 16, 256, 1024}, {70, 5, 64, 3}, {9, 3, 37, 74}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << " heads of " << head_dim);
    const int64_t columns = heads * head_dim;
    const int64_t wide = 2 * columns + more;
    Compare({Normal({tokens, columns}), Normal({tokens, wide}), Normal({tokens, columns})},
            {NanOf({tokens, columns}), NanOf({tokens, columns}), NanOf({tokens, columns}),
             Normal({tokens, wide})},
            [&, h = heads](const Operations& ops, const Tensors& in, Tensors& out) {
              ops.OutputGate(in[0], in[1], h, out[0])();
              ops.OutputGateBackward(in[2], in[0], in[1], h, out[1], out[2], out[3])();
            });
  }
}

// Weights that begin between two packs.
TEST_P(CudaHeadsTest, HeadNormOfWeightsAnywhere) {
  constexpr int64_t kHeadDim = 64;
  const auto weight = [](const at::Tensor& padded) { return padded.narrow(0, 1, kHeadDim); };
  Compare({Normal({70, 8 * kHeadDim}), Normal({kHeadDim + 1}), Normal({kHeadDim + 1})},
          {NanOf({70, 8 * kHeadDim}), Normal({70, 8 * kHeadDim}), NanStatistics({kHeadDim}),
           NanStatistics({kHeadDim})},
          [&](const Operations& ops, const Tensors& in, Tensors& out) {
            const WorkMemory work(
                ops, HeadNormBackwardWorkBytes(ops.kind(), in[0].size(0), kHeadDim, in[0].element_size()));
            ops.HeadNorm(in[0], 4, 2, weight(in[1]), weight(in[2]), {1e-5}, out[0])();
            ops.HeadNormBackward(in[0], 4, 2, weight(in[1]), weight(in[2]), {1e-5}, /*add_weights=*/false,
                                 out[1], out[2], out[3], work)();
          });
}

// Fewer rows than there are groups, and more; columns that are whole blocks, and others.
TEST_P(CudaHeadsTest, QkvBias) {
  for (const auto& [tokens, query, key] :
       std::vector<std::array<int64_t, 3>>{{1, 2, 2}, {7, 40, 8}, {1100, 256, 128}, {3000, 1000, 33}}) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, " << query << " and " << key << " columns"
                                      << (add ? ", added" : ""));
      const int64_t width = query + 2 * key;
      const auto sums = [&](int64_t columns) {
        return add ? NormalStatistics({columns}) : NanStatistics({columns});
      };
      Compare({Normal({tokens, width}), Normal({query}), Normal({key}), Normal({key})},
              {Normal({tokens, width}), sums(query), sums(key), sums(key)},
              [&](const Operations& ops, const Tensors& in, Tensors& out) {
                const WorkMemory work(ops, QkvBiasBackwardWorkBytes(ops.kind(), in[0].size(0), in[0].size(1),
                                                                    in[0].element_size()));
                ops.QkvBias(in[1], in[2], in[3], out[0])();
                ops.QkvBiasBackward(in[0], add, out[1], out[2], out[3], work)();
              });
    }
  }
}

TEST_P(CudaHeadsTest, ABiasOfAllColumns) {
  for (const auto& [tokens, columns] : std::vector<std::array<int64_t, 2>>{{1, 2}, {7, 40}, {3000, 1033}}) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << tokens << " tokens, " << columns << " columns" << (add ? ", added" : ""));
      Compare({Normal({tokens, columns}), Normal({columns})},
              {Normal({tokens, columns}), add ? NormalStatistics({columns}) : NanStatistics({columns})},
              [&](const Operations& ops, const Tensors& in, Tensors& out) {
                const WorkMemory work(ops, QkvBiasBackwardWorkBytes(ops.kind(), in[0].size(0), in[0].size(1),
                                                                    in[0].element_size()));
                ops.Bias(in[1], out[0])();
                ops.BiasBackward(in[0], add, out[1], work)();
              });
    }
  }
}

// Parts of heads that are whole packs in every type, and others; key rotary parts that begin at a pack, and
// others.
TEST_P(CudaHeadsTest, LatentHeads) {
  for (const LatentHeads& heads : std::vector<LatentHeads>{{1, 0, 2, 2},
                                                           {3, 6, 4, 8},
                                                           {4, 128, 64, 128},
                                                           {2, 10, 6, 5},
                                                           {3, 16, 16, 8},
                                                           {2, 0, 16, 16},
                                                           {37, 48, 16, 24}}) {
    for (const int64_t beside : {11, 16}) {
      SCOPED_TRACE(testing::Message() << heads.heads << " heads of " << heads.content << " + " << heads.rotary
                                      << ", values of " << heads.value << ", " << beside << " beside");
      const int64_t tokens = 21;
      const int64_t query = heads.heads * heads.head_dim();
      const int64_t key_value = heads.heads * (heads.content + heads.value);
      const int64_t down = heads.rotary + beside;
      Compare(
          {Normal({tokens, query}), Normal({tokens, key_value}), Normal({tokens, down}),
           Normal({tokens, 3 * query})},
          {NanOf({tokens, 3 * query}), NanOf({tokens, query}), NanOf({tokens, key_value}),
           Normal({tokens, down})},
          [&](const Operations& ops, const Tensors& in, Tensors& out) {
            ops.PackLatentHeads(heads, in[0], in[1], in[2], out[0])();
            ops.UnpackLatentHeads(heads, in[3], out[1], out[2], out[3])();
          },
          2, kHeadRepeats);
    }
  }
}

}  // namespace
}  // namespace tandem::ops
