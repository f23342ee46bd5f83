#include "ops/cuda/operations.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/attention_work.h"
#include "ops/linear_work.h"
#include "ops/rope.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using test::FilledWithNan;
using test::Numbers;
using test::RelativeError;
using test::SameBits;
using test::StatisticsOf;
using test::Tolerance;

// Every operation on the GPU against the one on the CPU, and against itself.
class CudaOperationsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  using Tensors = std::vector<at::Tensor>;

  at::Tensor Normal(const std::vector<int64_t>& shape) { return numbers_.Normal(shape).to(GetParam()); }
  at::Tensor NanOf(const std::vector<int64_t>& shape) { return FilledWithNan(shape, GetParam()); }
  // Of statistics: float where elements are bfloat16.
  at::Tensor NormalStatistics(const std::vector<int64_t>& shape) {
    return numbers_.Normal(shape).to(StatisticsOf(GetParam()));
  }
  at::Tensor NanStatistics(const std::vector<int64_t>& shape) {
    return FilledWithNan(shape, StatisticsOf(GetParam()));
  }

  // run(operations, in, out): `out` is read and written. Compares `out` after both.
  void Compare(const Tensors& in, const Tensors& out,
               const std::function<void(const Operations&, const Tensors&, Tensors&)>& run) {
    Tensors expected = Copies(out, at::kCPU);
    run(CpuOperations(), in, expected);
    Tensors first = Copies(out, at::kCUDA);
    Tensors second = Copies(out, at::kCUDA);
    const Tensors on_gpu = Copies(in, at::kCUDA);
    run(CudaOperations(), on_gpu, first);
    run(CudaOperations(), on_gpu, second);
    for (size_t i = 0; i < out.size(); ++i) {
      // Each is within Tolerance of the exact result; bfloat16s that were rounded may be read again.
      const at::ScalarType type = out[i].scalar_type();
      const double tolerance = GetParam() == at::kBFloat16 ? 4 * Tolerance(GetParam()) : 2 * Tolerance(type);
      EXPECT_LE(RelativeError(first[i].cpu(), expected[i]), tolerance) << "output " << i;
      EXPECT_TRUE(SameBits(first[i].cpu(), second[i].cpu())) << "output " << i << " does not repeat";
    }
  }

  Numbers numbers_{20251};

 private:
  static Tensors Copies(const Tensors& tensors, at::DeviceType device) {
    Tensors copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone().to(device));
    return copies;
  }
};

TEST_P(CudaOperationsTest, RmsNorm) {
  for (const int64_t columns : {7, 256, 1000}) {
    for (const bool add : {false, true}) {
      Compare({Normal({33, columns}), Normal({33, columns}), Normal({columns}), Normal({33, columns})},
              {NanOf({33, columns}), add ? Normal({33, columns}) : NanOf({33, columns}),
               add ? NormalStatistics({columns}) : NanStatistics({columns})},
              [&](const Operations& ops, const Tensors& in, Tensors& out) {
                ops.RmsNorm(in[1], in[2], 1e-5, out[0]);
                ops.RmsNormBackward(in[0], in[1], in[2], 1e-5, add ? in[3] : at::Tensor(), add, out[1], add,
                                    out[2]);
              });
    }
  }
}

TEST_P(CudaOperationsTest, Rope) {
  at::Tensor cosines = NanStatistics({12, 5});
  at::Tensor sines = NanStatistics({12, 5});
  RopeTables(10000, cosines, sines);
  Compare({cosines, sines}, {Normal({36, 50}), Normal({36, 50})},
          [](const Operations& ops, const Tensors& in, Tensors& out) {
            ops.Rope(in[0], in[1], 4, out[0]);
            ops.RopeBackward(in[0], in[1], 4, out[1]);
          });
}

TEST_P(CudaOperationsTest, Attention) {
  for (const int64_t kv_heads : {1, 2, 6}) {
    const AttentionShape shape{
        .sequences = 3, .length = 37, .heads = 6, .kv_heads = kv_heads, .head_dim = 10};
    const int64_t tokens = shape.sequences * shape.length;
    const int64_t width = (shape.heads + 2 * kv_heads) * shape.head_dim;
    const int64_t work =
        AttentionBackwardWorkElements(shape.length, shape.head_dim, GetParam() == at::kDouble ? 8 : 4);
    Compare({Normal({tokens, width}), Normal({tokens, 60})},
            {NanOf({tokens, 60}), NanStatistics({shape.sequences, shape.heads, shape.length}),
             NanOf({tokens, width})},
            [&](const Operations& ops, const Tensors& in, Tensors& out) {
              at::Tensor scratch = at::empty({work}, out[1].options());
              ops.Attention(shape, in[0], out[0], out[1], scratch);
              ops.AttentionBackward(shape, in[0], out[0], out[1], in[1], out[2], scratch);
            });
  }
}

TEST_P(CudaOperationsTest, SwiGlu) {
  Compare({Normal({19, 2 * 45}), Normal({19, 45})}, {NanOf({19, 45}), NanOf({19, 90}), Normal({19, 45})},
          [](const Operations& ops, const Tensors& in, Tensors& out) {
            ops.SwiGlu(in[0], out[0]);
            ops.SwiGluBackward(in[0], out[2], out[1], out[2]);  // in place
          });
}

TEST_P(CudaOperationsTest, CrossEntropy) {
  for (const int64_t vocabulary : {5, 300}) {
    const at::Tensor ids = numbers_.Integers({4, 9}, vocabulary);
    Compare({Normal({32, vocabulary})},
            {NanStatistics({32}), FilledWithNan({1}, at::kDouble), NanOf({32, vocabulary}),
             Normal({32, vocabulary})},
            [&](const Operations& ops, const Tensors& in, Tensors& out) {
              const at::Tensor targets = ids.to(in[0].device()).narrow(1, 1, 8);  // rows are apart
              ops.CrossEntropy(in[0], targets, out[0], out[1]);
              ops.CrossEntropyBackward(in[0], targets, out[0], out[2]);
              ops.CrossEntropyBackward(out[3], targets, out[0], out[3]);  // in place
            });
  }
}

TEST_P(CudaOperationsTest, Embedding) {
  for (const bool add : {false, true}) {
    // Many tokens of few ids: the order in which they are added matters.
    const at::Tensor ids = numbers_.Integers({7, 101}, 11);
    Compare({Normal({13, 70}), Normal({700, 70})},
            {NanOf({700, 70}), add ? Normal({13, 70}) : NanOf({13, 70}),
             add ? NormalStatistics({13, 70}) : NanStatistics({13, 70})},
            [&](const Operations& ops, const Tensors& in, Tensors& out) {
              const at::Tensor tokens = ids.to(in[0].device()).narrow(1, 0, 100);
              ops.Embedding(tokens, in[0], out[0]);
              ops.EmbeddingBackward(tokens, in[1], add, out[1]);
              ops.EmbeddingBackward(tokens, in[1], add, out[2]);
            });
  }
}

TEST_P(CudaOperationsTest, AnIdOutsideTheVocabularyGivesNoNumber) {
  const at::Tensor tokens = at::Tensor(numbers_.Integers({1, 4}, 3)).fill_(3).to(at::kCUDA);
  const at::Tensor weight = Normal({3, 8}).to(at::kCUDA);
  at::Tensor output = Normal({4, 8}).to(at::kCUDA);
  CudaOperations().Embedding(tokens, weight, output);
  EXPECT_TRUE(std::isnan(output.sum().item<double>()));
}

TEST_P(CudaOperationsTest, LinearAndResidualAdd) {
  Compare({Normal({40, 24}), Normal({56, 24}), Normal({40, 56})},
          {NanOf({40, 56}), NanOf({40, 24}), Normal({56, 24}), Normal({40, 24}), NormalStatistics({56, 24}),
           NanStatistics({56, 24})},
          [](const Operations& ops, const Tensors& in, Tensors& out) {
            const at::Tensor memory =
                at::empty({kLinearWorkBytes}, at::TensorOptions(at::kByte).device(in[0].device()));
            const Workspace work{.begin = memory.mutable_data_ptr(), .bytes = kLinearWorkBytes};
            ops.Linear(in[0], in[1], out[0], work);
            ops.LinearBackwardInput(in[2], in[1], out[1], work);
            ops.LinearBackwardWeight(in[2], in[0], /*add=*/true, out[2], work);
            ops.ResidualAdd(in[0], out[3]);
            ops.LinearBackwardWeight(in[2], in[0], /*add=*/true, out[4], work);
            ops.LinearBackwardWeight(in[2], in[0], /*add=*/false, out[5], work);
          });
}

INSTANTIATE_TEST_SUITE_P(Types, CudaOperationsTest, testing::Values(at::kFloat, at::kDouble, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace tandem::ops
