// SPDX-License-Identifier: Apache-2.0
// The same bits fifty times: of sizes that keep every multiprocessor busy, so that blocks finish in another
// order each time.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "ops/cuda/operations.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/rotary_tables.h"
#include "ops/row_work.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

class CudaRepeatsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  static constexpr int64_t kRows = 2048;
  static constexpr int64_t kHidden = 1024;

  at::Tensor Random(const std::vector<int64_t>& shape) const {
    return at::randn(shape, at::TensorOptions(at::kCUDA)).to(GetParam());
  }
  at::Tensor NanStatistics(const std::vector<int64_t>& shape) const {
    return FilledWithNan(shape, StatisticsOf(GetParam())).to(at::kCUDA);
  }
  static void ExpectRepeats(const std::function<std::vector<at::Tensor>()>& run) {
    const std::vector<at::Tensor> first = run();
    for (int time = 1; time < 50; ++time) {
      const std::vector<at::Tensor> again = run();
      for (size_t i = 0; i < first.size(); ++i) {
        ASSERT_TRUE(at::equal(first[i], again[i])) << "output " << i << ", run " << time;
      }
    }
  }

  const Operations& ops_ = CudaOperations();
  Numbers numbers_{20252};
};
INSTANTIATE_TEST_SUITE_P(Types, CudaRepeatsTest, AllTypes());

TEST_P(CudaRepeatsTest, Products) {
  const WorkMemory work(kGpuLinearWorkBytes, at::kCUDA);
  const at::Tensor x = Random({kRows, kHidden});
  const at::Tensor grad = Random({kRows, kHidden});
  const at::Tensor weight = Random({kHidden, kHidden});
  ExpectRepeats([&] {
    at::Tensor y = at::empty_like(x);
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor grad_weight = weight.clone();
    ops_.Linear(x, weight, /*residual=*/grad, y, work)();
    ops_.LinearBackwardInput(grad, weight, /*add=*/false, grad_x, work)();
    ops_.LinearBackwardWeight(grad, x, /*add=*/true, grad_weight, work)();
    return std::vector{y, grad_x, grad_weight};
  });
}

// Rows of a block, and rows of more packs, and more sums, than a block has.
TEST_P(CudaRepeatsTest, Norms) {
  for (const auto& [rows, columns] : std::vector<std::array<int64_t, 2>>{
           {kRows, kHidden}, {264, 6001}, {264, 16'384}, {264, 49'152}, {264, 60'000}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const at::Tensor x = Random({rows, columns});
    const at::Tensor grad_y = Random({rows, columns});
    const at::Tensor norm = Random({columns});
    const WorkMemory work(RmsNormBackwardWorkBytes(DeviceKind::kGpu, rows, columns, x.element_size()),
                          at::kCUDA);
    ExpectRepeats([&, columns = columns] {
      at::Tensor y = at::empty_like(x);
      at::Tensor grad_x = at::empty_like(x);
      at::Tensor grad_norm = NanStatistics({columns});
      ops_.RmsNorm(x, norm, {1e-5}, y)();
      ops_.RmsNormBackward(grad_y, x, norm, {1e-5}, /*residual=*/y, false, grad_x, false, grad_norm, work)();
      return std::vector{y, grad_x, grad_norm};
    });
  }
}

TEST_P(CudaRepeatsTest, RotationAndActivation) {
  const at::Tensor x = Random({kRows, kHidden});
  const at::Tensor grad = Random({kRows, kHidden / 2});
  at::Tensor cosines = FilledWithNan({kRows, 32}, StatisticsOf(GetParam()));
  at::Tensor sines = FilledWithNan({kRows, 32}, StatisticsOf(GetParam()));
  RopeTables(10000, {}, cosines, sines);
  const at::Tensor on_gpu_cosines = cosines.to(at::kCUDA);
  const at::Tensor on_gpu_sines = sines.to(at::kCUDA);
  ExpectRepeats([&] {
    at::Tensor rotated = x.clone();
    ops_.Rope(on_gpu_cosines, on_gpu_sines, kHidden / 64, 64, rotated)();
    at::Tensor activated = at::empty({kRows, kHidden / 2}, x.options());
    ops_.SwiGlu(x, activated)();
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor again = grad.clone();
    ops_.SwiGluBackward(x, again, grad_x, again)();
    return std::vector{rotated, activated, grad_x, again};
  });
}

TEST_P(CudaRepeatsTest, Embedding) {
  const WorkMemory work(EmbeddingBackwardWorkBytes(DeviceKind::kGpu, kRows), at::kCUDA);
  const at::Tensor ids = numbers_.Integers({2, kRows / 2}, 97).to(at::kCUDA);  // many of each
  const at::Tensor table = Random({97, kHidden});
  const at::Tensor grad = Random({kRows, kHidden});
  ExpectRepeats([&] {
    at::Tensor output = at::empty_like(grad);
    at::Tensor grad_table = at::empty_like(table);
    ops_.Embedding(ids, table, output)();
    ops_.EmbeddingBackward(ids, grad, /*add=*/false, grad_table, work)();
    return std::vector{output, grad_table};
  });
}

TEST_P(CudaRepeatsTest, Loss) {
  constexpr int64_t kTokens = 300;
  constexpr int64_t kVocabulary = 70'000;
  const at::Tensor targets = numbers_.Integers({1, kTokens}, kVocabulary).to(at::kCUDA);
  const at::Tensor logits = Random({kTokens, kVocabulary});
  ExpectRepeats([&] {
    at::Tensor lse = NanStatistics({kTokens});
    at::Tensor loss = FilledWithNan({1}, at::kDouble).to(at::kCUDA);
    at::Tensor grad_logits = at::empty_like(logits);
    ops_.CrossEntropy(logits, targets, lse, loss, grad_logits)();
    return std::vector{loss, grad_logits};
  });
}

}  // namespace
}  // namespace tandem::ops
