// SPDX-License-Identifier: Apache-2.0
#include "ops/causal_conv.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/operations.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

// Token by token, of the tokens of its document. starts: the first row of each row's document, or empty.
at::Tensor PlainConv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     const std::vector<int64_t>& starts) {
  const int64_t width = weight.size(1);
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < x.size(0); ++sequence) {
    for (int64_t t = 0; t < x.size(1); ++t) {
      at::Tensor sum = bias;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t read = t - width + 1 + j;
        if (read >= (starts.empty() ? 0 : starts[sequence * x.size(1) + t])) {
          sum = sum + weight.select(1, j) * x[sequence][read];
        }
      }
      rows.push_back(at::silu(sum));
    }
  }
  return at::stack(rows);
}

class CausalConvTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void Compare(int64_t sequences, int64_t length, int64_t channels, int64_t width,
               const std::vector<int64_t>& starts, bool has_bias = true) const {
    SCOPED_TRACE(testing::Message() << channels << " channels of " << length << " tokens, width " << width);
    const at::ScalarType type = GetParam();
    Numbers numbers(61);
    const auto random = [&](const std::vector<int64_t>& shape) {
      return Leaf(Rounded(numbers.Normal(shape), type));
    };
    const at::Tensor x = random({sequences, length, channels});
    const at::Tensor weight = random({channels, width});
    const at::Tensor bias = has_bias ? random({channels}) : Leaf(at::zeros({channels}, at::kDouble));
    const at::Tensor grad_y = Rounded(numbers.Normal({sequences * length, channels}), type);
    const at::Tensor expected = PlainConv(x, weight, bias, starts);
    expected.backward(grad_y);

    const Operations& ops = CpuOperations();
    const int64_t tokens = sequences * length;
    const at::Tensor wide = FilledWithNan({tokens, channels + 5}, type);
    wide.narrow(1, 3, channels).copy_(x.detach().view({tokens, channels}));
    const at::Tensor own_weight = weight.detach().to(type);
    const at::Tensor bias_numbers = bias.detach().to(type);
    const Array own_bias = has_bias ? Array(bias_numbers) : Array();
    at::Tensor documents = at::zeros({sequences, length}, at::kLong);
    std::copy(starts.begin(), starts.end(), documents.data_ptr<int64_t>());
    const Array own_documents = starts.empty() ? Array() : Array(documents);
    at::Tensor y = FilledWithNan({tokens, channels}, type);
    ops.CausalConv(sequences, wide.narrow(1, 3, channels), own_documents, own_weight, own_bias, y)();
    EXPECT_LE(RelativeError(y, expected), Tolerance(type));

    at::Tensor grad_wide = FilledWithNan({tokens, channels + 2}, type);
    at::Tensor grad_weight = FilledWithNan({channels, width}, StatisticsOf(type));
    at::Tensor grad_bias = FilledWithNan({channels}, StatisticsOf(type));
    ops.CausalConvBackward(sequences, wide.narrow(1, 3, channels), own_documents, own_weight, own_bias,
                           grad_y.to(type), grad_wide.narrow(1, 1, channels), grad_weight,
                           has_bias ? Array(grad_bias) : Array(), {})();
    EXPECT_LE(RelativeError(grad_wide.narrow(1, 1, channels), x.grad().view({tokens, channels})),
              Tolerance(type));
    EXPECT_LE(RelativeError(grad_weight, weight.grad()), Tolerance(type));
    if (has_bias) {
      EXPECT_LE(RelativeError(grad_bias, bias.grad()), Tolerance(type));
    }
    EXPECT_TRUE(grad_wide.narrow(1, 0, 1).isnan().all().item<bool>()) << "another's column was written";
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CausalConvTest, AllTypes());

TEST_P(CausalConvTest, MatchesAutograd) {
  for (const int64_t width : {1, 2, 4, 8}) {
    Compare(2, 11, 5, width, {});
    Compare(1, 3, 37, width, {});
    Compare(3, 1, 16, width, {});
    Compare(2, 11, 5, width, {}, /*has_bias=*/false);
  }
}

TEST_P(CausalConvTest, ADocumentReadsNoTokenOfAnother) {
  const std::vector<int64_t> starts = {0, 0, 2, 3, 3, 3, 3, 3, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7};
  for (const int64_t width : {1, 4, 8}) {
    Compare(2, 10, 9, width, starts);
  }
}

TEST(CausalConvRefusalTest, AWiderConvolutionIsRefused) {
  const at::Tensor x = at::zeros({4, 3});
  EXPECT_THROW(CpuOperations().CausalConv(1, x, {}, at::zeros({3, 9}), at::zeros({3}), x),
               std::invalid_argument);
  EXPECT_THROW(CpuOperations().CausalConv(3, x, {}, at::zeros({3, 4}), at::zeros({3}), x),
               std::invalid_argument);  // four tokens are no three sequences
}

}  // namespace
}  // namespace tandem::ops
