#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/decoder_shapes.h"
#include "model/node.h"
#include "ops/attention_work.h"
#include "ops/operations.h"
#include "tests/model/bound_decoder.h"
#include "tests/model/decoder_run.h"

namespace tandem::model {
namespace {

using test::DecoderRun;

using Parameters = std::map<std::string, at::Tensor>;

at::Tensor RandomTokens(BatchShape batch, int64_t vocabulary, uint64_t seed) {
  at::Tensor tokens = at::empty({batch.sequences, batch.sequence_length + 1}, at::kLong);
  std::mt19937_64 engine(seed);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data_ptr<int64_t>()[i] = static_cast<int64_t>(engine() % static_cast<uint64_t>(vocabulary));
  }
  return tokens;
}

// The same model, written plainly, for autograd. Tensors are [B, heads, S, d] inside attention.
class Reference {
 public:
  Reference(const DecoderConfig& config, const Parameters& parameters) : config_(config) {
    for (const auto& [name, parameter] : parameters) {
      parameters_[name] =
          parameter.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
    }
  }

  at::Tensor Loss(const at::Tensor& batch) const {
    const int64_t sequences = batch.size(0);
    const int64_t length = batch.size(1) - 1;
    const at::Tensor inputs = batch.narrow(1, 0, length).reshape({-1});
    const at::Tensor targets = batch.narrow(1, 1, length).reshape({-1});
    const at::Tensor& embedding = parameters_.at("model.embed_tokens.weight");
    at::Tensor x = embedding.index_select(0, inputs);
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      x = x + Attention(Norm(x, layer + "input_layernorm"), layer + "self_attn.", sequences, length);
      const at::Tensor normed = Norm(x, layer + "post_attention_layernorm");
      const at::Tensor gated =
          at::silu(Project(normed, layer + "mlp.gate_proj")) * Project(normed, layer + "mlp.up_proj");
      x = x + Project(gated, layer + "mlp.down_proj");
    }
    x = Norm(x, "model.norm");
    const at::Tensor& head = config_.tie_word_embeddings ? embedding : parameters_.at("lm_head.weight");
    return at::cross_entropy_loss(at::matmul(x, head.t()), targets);
  }

  const Parameters& parameters() const { return parameters_; }

 private:
  at::Tensor Project(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, parameters_.at(name + ".weight").t());
  }

  at::Tensor Norm(const at::Tensor& x, const std::string& name) const {
    return x * (x.square().mean(-1, true) + config_.rms_norm_eps).rsqrt() * parameters_.at(name + ".weight");
  }

  at::Tensor Rotate(const at::Tensor& x) const {
    const int64_t dim = config_.head_dim;
    const at::Tensor frequencies =
        at::pow(config_.rope_theta, at::arange(0, dim, 2, at::kDouble) / dim).reciprocal();
    const at::Tensor angles = at::arange(x.size(2), at::kDouble).unsqueeze(1) * frequencies;
    const at::Tensor twice = at::cat({angles, angles}, -1);
    const at::Tensor turned = at::cat({-x.narrow(-1, dim / 2, dim / 2), x.narrow(-1, 0, dim / 2)}, -1);
    return x * twice.cos() + turned * twice.sin();
  }

  at::Tensor Attention(const at::Tensor& x, const std::string& prefix, int64_t sequences,
                       int64_t length) const {
    const auto heads = [&](const char* name, int64_t count) {
      return Project(x, prefix + name).view({sequences, length, count, config_.head_dim}).transpose(1, 2);
    };
    const int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
    const at::Tensor q = Rotate(heads("q_proj", config_.num_attention_heads));
    const at::Tensor k = Rotate(heads("k_proj", config_.num_key_value_heads)).repeat_interleave(group, 1);
    const at::Tensor v = heads("v_proj", config_.num_key_value_heads).repeat_interleave(group, 1);
    const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
    const at::Tensor scores =
        (at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(config_.head_dim)))
            .masked_fill(later, -std::numeric_limits<double>::infinity());
    const at::Tensor context = at::matmul(at::softmax(scores, -1), v);
    return Project(context.transpose(1, 2).reshape({sequences * length, -1}), prefix + "o_proj");
  }

  const DecoderConfig config_;
  Parameters parameters_;
};

double RelativeNorm(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.to(at::kDouble);
  return ((a - expected).norm() / expected.norm()).item<double>();
}

struct Shape {
  const char* name;
  DecoderConfig config;
  BatchShape batch;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

DecoderConfig Config(int64_t hidden, int64_t inner, int64_t layers, int64_t heads, int64_t kv_heads,
                     int64_t head_dim, int64_t vocabulary, bool tied) {
  return {.hidden_size = hidden,
          .intermediate_size = inner,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = kv_heads,
          .head_dim = head_dim,
          .vocab_size = vocabulary,
          .tie_word_embeddings = tied};
}

const Shape kShapes[] = {
    {"untied", Config(32, 48, 2, 2, 2, 16, 40, false), {2, 33}},
    {"tied", Config(32, 48, 2, 2, 2, 16, 40, true), {2, 33}},
    {"grouped_queries", Config(24, 40, 3, 4, 2, 6, 17, false), {3, 20}},
    {"grouped_queries_tied_odd_sizes", Config(15, 23, 2, 4, 1, 10, 13, true), {1, 37}},
    {"one_token", Config(8, 12, 1, 1, 1, 8, 5, false), {1, 1}},
    {"no_layers", Config(8, 12, 0, 1, 1, 8, 5, true), {2, 3}},
};

class DecoderNodesTest : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, DecoderNodesTest, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DecoderNodesTest, LossAndEveryGradientMatchAutograd) {
  const Shape& shape = GetParam();
  const uint64_t seed = 91;
  std::cout << "seed " << seed << "\n";
  const at::Tensor tokens = RandomTokens(shape.batch, shape.config.vocab_size, seed);
  for (const ComputeType type : {ComputeType::kFp64, ComputeType::kFp32}) {
    const double tolerance = type == ComputeType::kFp64 ? 1e-11 : 2e-5;
    DecoderRun run(shape.config, shape.batch, type, seed);
    const double loss = run.Forward(tokens);
    run.Backward();

    const Reference reference(shape.config, run.parameters());
    const at::Tensor expected = reference.Loss(tokens);
    expected.backward();
    EXPECT_NEAR(loss / expected.item<double>(), 1, tolerance);
    ASSERT_EQ(run.gradients().size(), reference.parameters().size());
    for (const auto& [name, parameter] : reference.parameters()) {
      const at::Tensor& gradient = run.gradients().at(name);
      if (parameter.grad().norm().item<double>() == 0) {  // one token: nothing to attend to
        EXPECT_LE(gradient.norm().item<double>(), tolerance) << name;
      } else {
        EXPECT_LE(RelativeNorm(gradient, parameter.grad()), tolerance) << name;
      }
    }
  }
}

TEST_P(DecoderNodesTest, RepeatsBitForBitWhateverRanBefore) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape.batch, shape.config.vocab_size, 92);
  const at::Tensor other = RandomTokens(shape.batch, shape.config.vocab_size, 93);
  DecoderRun run(shape.config, shape.batch, ComputeType::kFp32, 92);
  const double loss = run.Forward(tokens);
  run.Backward();
  Parameters first;
  for (const auto& [name, gradient] : run.gradients()) {
    first[name] = gradient.clone();
  }
  run.Forward(other);
  run.Backward();
  EXPECT_EQ(run.Forward(tokens), loss);
  run.Backward();
  for (const auto& [name, gradient] : run.gradients()) {
    EXPECT_EQ(std::memcmp(gradient.const_data_ptr(), first[name].const_data_ptr(), gradient.nbytes()), 0)
        << name;
  }
}

TEST_P(DecoderNodesTest, BoundPassesGiveTheSameBits) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape.batch, shape.config.vocab_size, 94);
  DecoderRun run(shape.config, shape.batch, ComputeType::kFp32, 94);
  test::BoundDecoder bound(shape.config, shape.batch, ComputeType::kFp32, 94);
  EXPECT_EQ(run.Forward(tokens), bound.Forward(tokens));
  run.Backward();
  bound.Backward();
  for (const auto& [name, gradient] : run.gradients()) {
    const at::Tensor& other = bound.parameter_gradients().at(name);
    EXPECT_EQ(std::memcmp(gradient.const_data_ptr(), other.const_data_ptr(), gradient.nbytes()), 0) << name;
  }
}

TEST(DecoderScratchTest, HoldsTheWorkOfTheAttentionKernels) {
  for (const ComputeType type : {ComputeType::kFp32, ComputeType::kFp64}) {
    for (const int64_t length : {1, 31, 32, 33, 64, 100, 256, 1000}) {
      for (const int64_t head_dim : {2, 6, 16, 32, 80, 128}) {
        const DecoderShapes shapes(Config(8, 8, 1, 1, 1, head_dim, 8, false), {1, length}, type);
        const int64_t bytes = ElementBytes(type);
        const ScratchLayout forward = attention_forward::Scratch(shapes);
        EXPECT_EQ(forward.bytes - forward.offsets[attention_forward::kWork],
                  ops::AttentionWorkElements(length, head_dim, bytes) * bytes);
        const ScratchLayout backward = attention_backward::Scratch(shapes);
        EXPECT_EQ(backward.bytes - backward.offsets[attention_backward::kWork],
                  ops::AttentionBackwardWorkElements(length, head_dim, bytes) * bytes);
      }
    }
  }
}

TEST(DecoderNodesRefusalTest, NodesRefuseHalvesOfTheirBackward) {
  const std::unique_ptr<device::Device> device = device::MakeCpuDevice();
  device::Arena arena(*device, 1 << 20);
  for (const std::unique_ptr<Node>& node :
       DecoderNodes(Config(8, 8, 1, 1, 1, 8, 8, false), {1, 4}, ComputeType::kFp32, ops::CpuOperations())) {
    NodeCall call{.pass = Pass::kBackwardInput};
    EXPECT_THROW(node->Prepare(call, arena), c10::Error);
  }
}

}  // namespace
}  // namespace tandem::model
