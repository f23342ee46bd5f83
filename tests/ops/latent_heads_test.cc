// SPDX-License-Identifier: Apache-2.0
#include "ops/latent_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "ops/operations.h"
#include "ops/rotary_tables.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using namespace test;

constexpr double kLatentTheta = 10000;

// Divides each frequency by 4, and multiplies sines and cosines by 3 beside the products' own factor.
constexpr RopeScaling kLatentYarn = {.type = RopeScalingType::kYarn,
                                     .factor = 4,
                                     .original_length = 1e30,
                                     .attention_factor = 3,
                                     .mscale_all_dim = 2};
// Of products, as DeepseekV3Attention multiplies its scores.
double ScoreFactor(const RopeScaling& scaling) {
  return scaling.type == RopeScalingType::kNone ? 1 : std::pow(0.1 * 2 * std::log(4) + 1, 2);
}

// As DeepseekV3Attention turns interleaved pairs. x: [S, heads, rotary].
at::Tensor Turned(const at::Tensor& x, const RopeScaling& scaling) {
  const int64_t rotary = x.size(2);
  const bool scaled = scaling.type != RopeScalingType::kNone;
  const at::Tensor frequencies =
      at::pow(kLatentTheta, at::arange(0, rotary, 2, at::kDouble) / rotary).reciprocal() / (scaled ? 4 : 1);
  const at::Tensor angles =
      (at::arange(x.size(0), at::kDouble).unsqueeze(1) * frequencies).view({x.size(0), 1, rotary / 2});
  const at::Tensor pairs = x.view({x.size(0), x.size(1), rotary / 2, 2});
  const at::Tensor first = pairs.select(3, 0);
  const at::Tensor second = pairs.select(3, 1);
  return at::cat({first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()},
                 -1) *
         (scaled ? 3 : 1);
}

class LatentHeadsTest : public AgainstAutogradTest {};
INSTANTIATE_TEST_SUITE_P(Types, LatentHeadsTest, AllTypes());

// What attention sees of queries and keys are their products, of values their elements: in whatever order the
// dims lie, both are those of the formula, and so are the gradients of a function of them.
TEST_P(LatentHeadsTest, ProductsValuesAndTheirGradientsMatchAutograd) {
  for (const auto& [h, scaling] : std::vector<std::pair<LatentHeads, RopeScaling>>{
           {{.heads = 1, .content = 0, .rotary = 2, .value = 1}, {}},
           {{.heads = 3, .content = 6, .rotary = 4, .value = 5}, {}},
           {{.heads = 3, .content = 6, .rotary = 4, .value = 5}, kLatentYarn},
           {{.heads = 2, .content = 2, .rotary = 8, .value = 10}, {}}}) {
    SCOPED_TRACE(testing::Message() << h.heads << " heads of " << h.content << " + " << h.rotary);
    const int64_t tokens = 7;
    const int64_t d = h.head_dim();
    const int64_t rank = 3;
    const auto random = [&](int64_t columns) { return RandomLeaf({tokens, columns}); };
    const at::Tensor query = random(h.heads * d);
    const at::Tensor key_value = random(h.heads * (h.content + h.value));
    const at::Tensor down = random(rank + h.rotary);

    const at::Tensor q = query.view({tokens, h.heads, d});
    const at::Tensor kv = key_value.view({tokens, h.heads, -1});
    const at::Tensor shared = down.narrow(1, rank, h.rotary).view({tokens, 1, h.rotary});
    const at::Tensor queries =
        at::cat({q.narrow(2, 0, h.content), Turned(q.narrow(2, h.content, h.rotary), scaling)}, -1);
    const at::Tensor keys = at::cat(
        {kv.narrow(2, 0, h.content), Turned(shared, scaling).expand({tokens, h.heads, h.rotary})}, -1);
    const at::Tensor values = kv.narrow(2, h.content, h.value);
    const auto products = [](const at::Tensor& a, const at::Tensor& b) {
      return at::matmul(a.transpose(0, 1), b.transpose(0, 1).transpose(1, 2));  // [heads, T, T]
    };
    const at::Tensor expected = products(queries, keys) * ScoreFactor(scaling);
    const at::Tensor weights = numbers_.Normal({h.heads, tokens, tokens});
    const at::Tensor value_weights = Random({tokens, h.heads, h.value});
    ((expected * weights).sum() + (values * value_weights).sum()).backward();

    at::Tensor cosines = NanStatistics({tokens, d / 2});
    at::Tensor sines = NanStatistics({tokens, d / 2});
    LatentRotaryTables(h, kLatentTheta, scaling, cosines, sines);
    at::Tensor qkv = Nan({tokens, 3 * h.heads * d});
    ops_.PackLatentHeads(h, Typed(query), Typed(key_value), Typed(down), qkv)();
    ops_.Rope(cosines, sines, 2 * h.heads, d, qkv)();
    const at::Tensor packed = qkv.to(at::kDouble).view({tokens, 3, h.heads, d});
    EXPECT_TRUE(Near(products(packed.select(1, 0), packed.select(1, 1)), expected, 2));
    EXPECT_TRUE(packed.select(1, 2).narrow(2, 0, h.value).equal(values));
    EXPECT_TRUE((packed.select(1, 2).narrow(2, h.value, d - h.value) == 0).all().item<bool>());

    // The gradient of what attention saw, by hand, in the type.
    const at::Tensor grad = FilledWithNan({tokens, 3, h.heads, d}, at::kDouble);
    grad.select(1, 0).copy_(at::matmul(weights, packed.select(1, 1).transpose(0, 1)).transpose(0, 1));
    grad.select(1, 1).copy_(
        at::matmul(weights.transpose(1, 2), packed.select(1, 0).transpose(0, 1)).transpose(0, 1));
    grad.select(1, 2).narrow(2, 0, h.value).copy_(value_weights);
    at::Tensor grad_qkv = grad.to(type_).view({tokens, 3 * h.heads * d});
    ops_.RopeBackward(cosines, sines, 2 * h.heads, d, grad_qkv)();
    at::Tensor grad_query = Nan({tokens, h.heads * d});
    at::Tensor grad_key_value = Nan({tokens, h.heads * (h.content + h.value)});
    at::Tensor grad_down = Nan({tokens, rank + h.rotary});
    ops_.UnpackLatentHeads(h, grad_qkv, grad_query, grad_key_value, grad_down)();
    EXPECT_TRUE(Near(grad_query, query.grad(), 2));
    EXPECT_TRUE(Near(grad_key_value, key_value.grad(), 2));
    EXPECT_TRUE(Near(grad_down.narrow(1, rank, h.rotary), down.grad().narrow(1, rank, h.rotary), 2));
    EXPECT_TRUE(grad_down.narrow(1, 0, rank).isnan().all().item<bool>());  // another's
  }
}

TEST(LatentHeadsTest, RefusesWhatDoesNotFit) {
  const at::Tensor query = at::zeros({2, 6});
  const at::Tensor key_value = at::zeros({2, 8});
  const at::Tensor down = at::zeros({2, 2});
  at::Tensor qkv = at::zeros({2, 18});
  EXPECT_THROW(CpuOperations().PackLatentHeads({.heads = 1, .content = 4, .rotary = 2, .value = 7}, query,
                                               key_value, down, qkv)(),
               std::invalid_argument);  // longer than a head
  EXPECT_THROW(CpuOperations().PackLatentHeads({.heads = 1, .content = 3, .rotary = 3, .value = 5}, query,
                                               key_value, down, qkv)(),
               std::invalid_argument);  // odd
  CpuOperations().PackLatentHeads({.heads = 1, .content = 4, .rotary = 2, .value = 4}, query, key_value, down,
                                  qkv)();
}

}  // namespace
}  // namespace tandem::ops
