// SPDX-License-Identifier: Apache-2.0
#include "ops/causal_conv.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

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

class CausalConvTest : public AgainstAutogradTest {
 protected:
  void Compare(int64_t sequences, int64_t length, int64_t channels, int64_t width,
               const std::vector<int64_t>& starts, bool has_bias = true) {
    SCOPED_TRACE(testing::Message() << channels << " channels of " << length << " tokens, width " << width);
    const at::Tensor x = RandomLeaf({sequences, length, channels});
    const at::Tensor weight = RandomLeaf({channels, width});
    const at::Tensor bias = has_bias ? RandomLeaf({channels}) : Leaf(at::zeros({channels}, at::kDouble));
    const at::Tensor grad_y = Random({sequences * length, channels});
    const at::Tensor expected = PlainConv(x, weight, bias, starts);
    expected.backward(grad_y);

    const int64_t tokens = sequences * length;
    const at::Tensor wide = Nan({tokens, channels + 5});
    wide.narrow(1, 3, channels).copy_(x.detach().view({tokens, channels}));
    const at::Tensor own_weight = Typed(weight);
    const at::Tensor bias_numbers = Typed(bias);
    const Array own_bias = has_bias ? Array(bias_numbers) : Array();
    const at::Tensor documents = DocumentsOf(starts, sequences, length);
    at::Tensor y = Nan({tokens, channels});
    ops_.CausalConv(sequences, wide.narrow(1, 3, channels), documents, own_weight, own_bias, y)();
    EXPECT_TRUE(Near(y, expected));

    at::Tensor grad_wide = Nan({tokens, channels + 2});
    at::Tensor grad_weight = NanStatistics({channels, width});
    at::Tensor grad_bias = NanStatistics({channels});
    ops_.CausalConvBackward(sequences, wide.narrow(1, 3, channels), documents, own_weight, own_bias,
                            grad_y.to(type_), grad_wide.narrow(1, 1, channels), grad_weight,
                            has_bias ? Array(grad_bias) : Array(), {})();
    EXPECT_TRUE(Near(grad_wide.narrow(1, 1, channels), x.grad().view({tokens, channels})));
    EXPECT_TRUE(Near(grad_weight, weight.grad()));
    if (has_bias) {
      EXPECT_TRUE(Near(grad_bias, bias.grad()));
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
