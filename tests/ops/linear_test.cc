#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "ops/linear_work.h"
#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

static_assert(kLinearWorkBytes == 0, "these tests give the products no work memory");

const Operations& Ops() { return CpuOperations(); }

class LinearTest : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, LinearTest, testing::Values(at::kFloat, at::kDouble));

TEST_P(LinearTest, MatchesAutograd) {
  const at::ScalarType type = GetParam();
  Numbers numbers(11);
  for (const auto& [tokens, inputs, outputs] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {1, 5, 3}, {7, 33, 17}, {64, 128, 96}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    const at::Tensor x = Leaf(numbers.Normal({tokens, inputs}));
    const at::Tensor weight = Leaf(numbers.Normal({outputs, inputs}));
    const at::Tensor grad_y = numbers.Normal({tokens, outputs});
    const at::Tensor expected = at::mm(x, weight.t());
    expected.backward(grad_y);

    const at::Tensor x_t = x.detach().to(type);
    const at::Tensor weight_t = weight.detach().to(type);
    const at::Tensor grad_y_t = grad_y.to(type);
    at::Tensor y = FilledWithNan({tokens, outputs}, type);
    at::Tensor grad_x = FilledWithNan({tokens, inputs}, type);
    at::Tensor grad_weight = FilledWithNan({outputs, inputs}, type);
    const void* memory = grad_weight.const_data_ptr();
    Ops().Linear(x_t, weight_t, y, {});
    Ops().LinearBackwardInput(grad_y_t, weight_t, grad_x, {});
    Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/false, grad_weight, {});
    EXPECT_LE(RelativeError(y, expected), Tolerance(type));
    EXPECT_LE(RelativeError(grad_x, x.grad()), Tolerance(type));
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(type));

    Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/true, grad_weight, {});
    EXPECT_LE(RelativeError(grad_weight, weight.grad() * 2), Tolerance(type));
    EXPECT_EQ(grad_weight.const_data_ptr(), memory);
  }
}

TEST_P(LinearTest, TakesViewsOfLargerMatrices) {
  const at::ScalarType type = GetParam();
  Numbers numbers(12);
  const at::Tensor wide = numbers.Normal({9, 40}).to(type);
  const at::Tensor weight = numbers.Normal({6, 16}).to(type);
  at::Tensor out = FilledWithNan({9, 20}, type);
  at::Tensor y = out.narrow(1, 4, 6);
  Ops().Linear(wide.narrow(1, 8, 16), weight, y, {});
  EXPECT_LE(RelativeError(y, at::mm(wide.narrow(1, 8, 16), weight.t())), Tolerance(type));
  EXPECT_TRUE(out.narrow(1, 0, 4).isnan().all().item<bool>());
  EXPECT_TRUE(out.narrow(1, 10, 10).isnan().all().item<bool>());
}

// The bits must depend on the shape alone: slots and arena blocks lie elsewhere for another number of ranks.
TEST_P(LinearTest, SameBitsAtEveryAlignedAddress) {
  const at::ScalarType type = GetParam();
  Numbers numbers(13);
  const int64_t line = 64 / static_cast<int64_t>(c10::elementSize(type));
  const at::Tensor memory = FilledWithNan({1 << 20}, type);
  const int64_t base =
      line - reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % 64 / memory.element_size();
  for (const auto& [tokens, inputs, outputs] :
       std::vector<std::array<int64_t, 3>>{{1, 64, 192}, {37, 24, 15}, {128, 64, 320}, {256, 128, 384}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
    const at::Tensor x = numbers.Normal({tokens, inputs}).to(type);
    const at::Tensor weight = numbers.Normal({outputs, inputs}).to(type);
    const at::Tensor grad_y = numbers.Normal({tokens, outputs}).to(type);
    std::vector<at::Tensor> first;
    for (const int64_t lines : {0, 1, 2, 3, 5, 17, 63}) {
      int64_t at = base;
      const auto place = [&](const std::vector<int64_t>& shape, const at::Tensor& values) {
        at += lines * line;
        at::Tensor tensor = memory.narrow(0, at, shape[0] * shape[1]).view(shape);
        at += (tensor.numel() + line - 1) / line * line;
        return values.defined() ? tensor.copy_(values) : tensor;
      };
      const at::Tensor x_t = place({tokens, inputs}, x);
      const at::Tensor weight_t = place({outputs, inputs}, weight);
      const at::Tensor grad_y_t = place({tokens, outputs}, grad_y);
      at::Tensor y = place({tokens, outputs}, {});
      at::Tensor grad_x = place({tokens, inputs}, {});
      at::Tensor grad_weight = place({outputs, inputs}, {});
      Ops().Linear(x_t, weight_t, y, {});
      Ops().LinearBackwardInput(grad_y_t, weight_t, grad_x, {});
      Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/false, grad_weight, {});
      at::Tensor added = grad_weight.clone();
      Ops().LinearBackwardWeight(grad_y_t, x_t, /*add=*/true, added, {});
      const std::vector<at::Tensor> results = {y.clone(), grad_x.clone(), grad_weight.clone(), added};
      first = first.empty() ? results : first;
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(SameBits(results[i], first[i])) << "result " << i << " at " << lines << " lines";
      }
    }
  }
}

TEST_P(LinearTest, RefusesAnOutputOfAnotherShape) {
  at::Tensor y = FilledWithNan({2, 5}, GetParam());
  const at::Tensor x = FilledWithNan({2, 3}, GetParam());
  EXPECT_THROW(Ops().Linear(x, FilledWithNan({4, 3}, GetParam()), y, {}), c10::Error);
}

TEST_P(LinearTest, RefusesAnOutputOfAnotherType) {
  const at::ScalarType other = GetParam() == at::kFloat ? at::kDouble : at::kFloat;
  at::Tensor grad_weight = FilledWithNan({4, 3}, other);
  EXPECT_THROW(
      Ops().LinearBackwardWeight(FilledWithNan({2, 4}, GetParam()), FilledWithNan({2, 3}, GetParam()),
                                 /*add=*/true, grad_weight, {}),
      c10::Error);
}

}  // namespace
}  // namespace tandem::ops
