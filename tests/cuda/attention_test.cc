// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/attention_work.h"
#include "ops/cuda/flash_attention.h"
#include "ops/cuda/hopper_products.h"
#include "ops/cuda/operations.h"
#include "ops/operations.h"
#include "tests/cuda/against_cpu.h"
#include "tests/ops/attention_run.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using test::AttentionOutputs;
using test::RelativeError;
using test::RunAttention;
using test::Tolerance;

class CudaAttentionTest : public test::AgainstCpuTest {
 protected:
  // [sequences, 2 length + 1], of which the last `length` columns say where tokens' documents begin. Of
  // several sequences the first is one document. The others are of many, some of a single token, and in those
  // behind the second they begin elsewhere.
  static at::Tensor BatchOf(const AttentionShape& shape) {
    const at::Tensor batch = at::zeros({shape.sequences, 2 * shape.length + 1}, at::kLong);
    const int64_t longest = std::max<int64_t>(100, shape.length / 8 - 1);
    for (int64_t sequence = shape.sequences > 1 ? 1 : 0; sequence < shape.sequences; ++sequence) {
      const at::Tensor starts = StartsIn(batch)[sequence];
      int64_t start = 0;
      while (start < shape.length) {
        const int64_t length = 1 + (7 * start + 31 * sequence * (sequence - 1)) % longest;
        const int64_t end = std::min(shape.length, start + length);
        starts.narrow(0, start, end - start).fill_(start);
        start = end;
      }
    }
    return batch;
  }
  static at::Tensor StartsIn(const at::Tensor& batch) {
    const int64_t length = batch.size(1) / 2;
    return batch.narrow(1, length + 1, length);
  }

  // batch: of BatchOf; undefined where a sequence is one document.
  void CompareAttention(const AttentionShape& shape, const at::Tensor& batch = {}) {
    SCOPED_TRACE(testing::Message() << shape.sequences << " x " << shape.length << ", " << shape.heads << ":"
                                    << shape.kv_heads << " heads of " << shape.head_dim
                                    << (shape.repeats ? "" : ", not repeatable"));
    CudaOperations().PrepareAttention(shape, static_cast<int64_t>(c10::elementSize(GetParam())));
    // The backward reads the context, which was rounded, and cuDNN rounds the probabilities and their
    // gradients before their products.
    const at::Tensor qkv = Normal({shape.tokens(), shape.qkv_columns()});
    Compare(
        {qkv, Normal({shape.tokens(), shape.context_columns()})}, AttentionOutputs(shape, qkv),
        [&](const Operations& ops, const Tensors& in, Tensors& out) {
          at::Tensor starts;
          if (batch.defined()) {
            starts = StartsIn(batch.to(in[0].device()));
          }
          RunAttention(ops, shape, in[0], starts, in[1], out);
        },
        GetParam() == at::kBFloat16 ? 4 : 2, /*repeats=*/shape.repeats ? 2 : 1);
  }
};

TEST_P(CudaAttentionTest, IsThatOfTheCpu) {
  for (AttentionShape shape : std::vector<AttentionShape>{{3, 37, 6, 1, 10},
                                                          {3, 37, 6, 2, 10},
                                                          {3, 37, 6, 6, 10},
                                                          {1, 1, 2, 1, 16},
                                                          {2, 33, 4, 2, 16},
                                                          {1, 64, 2, 2, 32},
                                                          {2, 257, 8, 2, 64},
                                                          {1, 300, 2, 1, 72},
                                                          {3, 130, 6, 3, 128},
                                                          {1, 128, 4, 1, 128},
                                                          {1, 70, 2, 1, 160},
                                                          {1, 2, 2, 2, 136},
                                                          {2, 257, 6, 2, 192},
                                                          {1, 300, 4, 4, 256},
                                                          {1, 70, 2, 1, 264},
                                                          {3, 37, 6, 2, 10, true, false, 0.6},
                                                          {3, 130, 6, 3, 128, true, false, 0.015625},
                                                          {2, 257, 6, 2, 192, true, false, 0.02}}) {
    for (const bool repeats : {true, false}) {
      shape.repeats = repeats;
      CompareAttention(shape);
    }
  }
}

TEST_P(CudaAttentionTest, StaysWithinDocuments) {
  for (AttentionShape shape : std::vector<AttentionShape>{{3, 37, 6, 2, 10},
                                                          {2, 257, 8, 2, 64},
                                                          {1, 300, 2, 1, 72},
                                                          {2, 512, 4, 4, 128},
                                                          {3, 200, 6, 2, 128},
                                                          {1, 37, 2, 2, 136},
                                                          {3, 257, 6, 2, 192},
                                                          {1, 1000, 2, 1, 248},
                                                          {2, 300, 4, 4, 256}}) {
    shape.documents = true;
    CompareAttention(shape, BatchOf(shape));
  }
}

// Windows shorter and longer than tiles of scores, and than documents.
TEST_P(CudaAttentionTest, StaysWithinSlidingWindows) {
  for (AttentionShape shape : std::vector<AttentionShape>{{3, 37, 6, 2, 10},
                                                          {2, 257, 8, 2, 64},
                                                          {2, 512, 4, 4, 128},
                                                          {1, 300, 2, 1, 136},
                                                          {2, 300, 4, 4, 256}}) {
    shape.documents = true;
    for (const int64_t window : {1, 20, 130, 600}) {
      for (const bool within : {false, true}) {
        SCOPED_TRACE(testing::Message() << "window " << window << (within ? ", within documents" : ""));
        at::Tensor batch = BatchOf(shape);
        at::Tensor starts = at::empty({shape.sequences, shape.length}, at::kLong);
        const at::Tensor documents = StartsIn(batch);
        CpuOperations().WindowStarts(window, within ? Array(documents) : Array(), starts)();
        const at::Tensor of_gpu = at::empty_like(starts, at::kCUDA);
        const at::Tensor on_gpu = documents.to(at::kCUDA);
        CudaOperations().WindowStarts(window, within ? Array(on_gpu) : Array(), of_gpu)();
        EXPECT_TRUE(at::equal(of_gpu.cpu(), starts));
        StartsIn(batch).copy_(starts);
        CompareAttention(shape, batch);
      }
    }
  }
}

// cuDNN has no kernels for these heads, so that every type's scores come in blocks.
TEST_P(CudaAttentionTest, StaysWithinDocumentsInSeveralBlocksOfScores) {
  AttentionShape shape{2, 2048, 16, 8, 10};
  EXPECT_LT(ScoreBlockRows(shape, static_cast<int64_t>(c10::elementSize(GetParam()))), shape.length);
  shape.documents = true;
  CompareAttention(shape, BatchOf(shape));
}

// Long sequences: several blocks of scores in float; of bfloat16 several parts, by sequence and by head.
TEST_P(CudaAttentionTest, InPartsIsThatOfFloat) {
  if (GetParam() != at::kBFloat16) {
    GTEST_SKIP() << "compares bfloat16 with float";
  }
  for (AttentionShape shape : std::vector<AttentionShape>{{4, 4096, 32, 8, 128},
                                                          {1, 8192, 32, 8, 128},
                                                          {1, 8192, 32, 8, 64},
                                                          {4, 4096, 32, 32, 192},
                                                          {1, 8192, 32, 8, 256}}) {
    const AttentionShape part = FlashBackwardPart(shape);
    EXPECT_LT(part.sequences * part.kv_heads, shape.sequences * shape.kv_heads);
    const at::TensorOptions on_gpu(at::kCUDA);
    const at::Tensor qkv = at::randn({shape.tokens(), shape.qkv_columns()}, on_gpu).to(GetParam());
    const at::Tensor grad = at::randn({shape.tokens(), shape.context_columns()}, on_gpu).to(GetParam());
    const at::Tensor batch = BatchOf(shape).to(at::kCUDA);
    const auto run = [&](at::ScalarType type, bool repeats) {
      AttentionShape form = shape;
      form.repeats = repeats;
      CudaOperations().PrepareAttention(form, static_cast<int64_t>(c10::elementSize(type)));
      const at::Tensor typed = qkv.to(type);
      Tensors out = AttentionOutputs(form, typed);
      RunAttention(CudaOperations(), form, typed, form.documents ? StartsIn(batch) : at::Tensor(),
                   grad.to(type), out);
      return out;
    };
    for (const bool within : {false, true}) {
      shape.documents = within;
      const Tensors expected = run(at::kFloat, true);
      for (const bool repeats : {true, false}) {
        const Tensors actual = run(at::kBFloat16, repeats);
        for (size_t i = 0; i < expected.size(); ++i) {
          // Probabilities and their gradients are rounded to bfloat16 too, before they are multiplied.
          EXPECT_LE(RelativeError(actual[i], expected[i]), 4 * Tolerance(actual[i].scalar_type()))
              << i << (repeats ? ", repeats" : "") << (within ? ", within documents" : "");
        }
      }
    }
  }
}

TEST_P(CudaAttentionTest, ItsBackwardRepeatsItsBits) {
  const at::Tensor rows = at::arange(1024, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  const at::Tensor starts = rows.sub(rows.remainder(300)).repeat({2, 1});
  for (const int64_t head_dim : {128, 192, 256}) {
    const at::Tensor qkv = at::randn({2048, 24 * head_dim}, at::TensorOptions(at::kCUDA)).to(GetParam());
    const at::Tensor grad = at::randn({2048, 16 * head_dim}, at::TensorOptions(at::kCUDA)).to(GetParam());
    for (const bool within : {false, true}) {
      const AttentionShape shape{.sequences = 2,
                                 .length = 1024,
                                 .heads = 16,
                                 .kv_heads = 4,
                                 .head_dim = head_dim,
                                 .documents = within};
      Tensors first;
      for (int run = 0; run < 50; ++run) {
        Tensors out = AttentionOutputs(shape, qkv);
        RunAttention(CudaOperations(), shape, qkv, within ? starts : at::Tensor(), grad, out);
        if (run == 0) {
          first = out;
        }
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_TRUE(at::equal(out[i], first[i])) << "heads of " << head_dim << ", output " << i << ", run "
                                                   << run << (within ? ", within documents" : "");
        }
      }
    }
  }
}

// Elsewhere cuDNN has no backward of longer heads.
TEST(FlashAttentionTest, ComputesWiderHeadsOnHopperThanElsewhere) {
  const auto computes = [](int64_t length, int64_t head_dim) {
    return cuda::FlashAttention::Computes({2, length, 4, 2, head_dim});
  };
  const bool hopper = !cuda::HopperVersion().empty();
  EXPECT_TRUE(computes(100, 8));
  EXPECT_TRUE(computes(100, 128));
  EXPECT_EQ(computes(100, 136), hopper);
  EXPECT_EQ(computes(100, 192), hopper);
  EXPECT_EQ(computes(100, 256), hopper);
  EXPECT_FALSE(computes(100, 264));
  EXPECT_FALSE(computes(100, 132));
  EXPECT_FALSE(computes(1, 192));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaAttentionTest, testing::Values(at::kFloat, at::kDouble, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace tandem::ops
