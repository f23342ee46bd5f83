// SPDX-License-Identifier: Apache-2.0
// The nodes' code through Node::Bind: against autograd, against itself, and what it refuses.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/model/autograd_decoder.h"
#include "tests/model/bound_decoder.h"

namespace tandem::model {
namespace {

using test::AutogradDecoder;
using test::BoundDecoder;

constexpr uint64_t kSeed = 91;

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

DecoderConfig Sparse(DecoderConfig config, Architecture architecture, int64_t experts, int64_t chosen,
                     bool normalize, int64_t inner, int64_t step) {
  config.architecture = architecture;
  config.moe = {.router = {.experts = experts, .top_k = chosen, .normalize = normalize},
                .intermediate_size = inner,
                .decoder_sparse_step = step,
                .router_aux_loss_coef = 0.1,
                .router_z_loss_coef = 0.05};
  return config;
}

DecoderConfig Dropping(DecoderConfig config, double factor, ops::DropPolicy policy) {
  config.moe.capacity = {.factor = factor, .policy = policy};
  return config;
}

DecoderConfig Padded(DecoderConfig config) {
  config.moe.capacity.pads = true;
  return config;
}

DecoderConfig Deepseek(DecoderConfig config, ops::RouterConfig router, int64_t dense_layers, int64_t shared,
                       LatentAttention latent) {
  config = Sparse(config, Architecture::kDeepseekV3, router.experts, router.top_k, router.normalize, 7, 1);
  config.moe.router = router;
  config.moe.first_k_dense_replace = dense_layers;
  config.moe.shared_intermediate_size = shared;
  config.latent = latent;
  return config;
}

// With a head of several blocks of logits, of which the last is narrower.
DecoderConfig InBlocks(DecoderConfig config) {
  config.keeps_logits = false;
  return config;
}

const Shape kShapes[] = {
    {"untied", Config(32, 48, 2, 2, 2, 16, 40, false), {2, 33}},
    {"tied", Config(32, 48, 2, 2, 2, 16, 40, true), {2, 33}},
    {"grouped_queries", Config(24, 40, 3, 4, 2, 6, 17, false), {3, 20}},
    {"grouped_queries_tied_odd_sizes", Config(15, 23, 2, 4, 1, 10, 13, true), {1, 37}},
    {"one_token", Config(8, 12, 1, 1, 1, 8, 5, false), {1, 1}},
    {"mixtral",
     Sparse(Config(32, 24, 2, 2, 2, 16, 40, false), Architecture::kMixtral, 8, 2, true, 24, 1),
     {2, 33}},
    {"qwen3_moe_with_dense_layers_around",
     Sparse(Config(24, 40, 3, 4, 2, 6, 17, true), Architecture::kQwen3Moe, 5, 3, false, 7, 2),
     {3, 20}},
    {"mixtral_that_drops_by_probability",
     Dropping(Sparse(Config(32, 24, 2, 2, 2, 16, 40, false), Architecture::kMixtral, 8, 2, true, 24, 1), 0.9,
              ops::DropPolicy::kProbability),
     {2, 33}},
    {"qwen3_moe_that_drops_by_position",
     Dropping(Sparse(Config(24, 40, 2, 4, 2, 6, 17, true), Architecture::kQwen3Moe, 5, 3, false, 7, 1), 1,
              ops::DropPolicy::kPosition),
     {3, 20}},
    {"mixtral_padded_that_drops_by_probability",
     Padded(
         Dropping(Sparse(Config(32, 24, 2, 2, 2, 16, 40, false), Architecture::kMixtral, 8, 2, true, 24, 1),
                  0.9, ops::DropPolicy::kProbability)),
     {2, 33}},
    // Every expert computes as many rows as there are tokens, and drops none.
    {"qwen3_moe_padded_with_room_for_all",
     Padded(Dropping(Sparse(Config(24, 40, 2, 4, 2, 6, 17, true), Architecture::kQwen3Moe, 5, 3, false, 7, 1),
                     5, ops::DropPolicy::kPosition)),
     {3, 20}},
    // Most experts have no token.
    {"one_token_of_a_sparse_layer",
     Sparse(Config(8, 12, 1, 1, 1, 8, 5, false), Architecture::kQwen3Moe, 16, 1, false, 3, 1),
     {1, 1}},
    {"deepseek_v3",
     Deepseek(
         Config(24, 40, 2, 4, 4, 10, 17, false),
         {.experts = 8,
          .top_k = 4,
          .score = ops::RouterScore::kSigmoid,
          .normalize = true,
          .groups = 4,
          .groups_per_token = 2,
          .scale = 2.5},
         /*dense_layers=*/1, /*shared=*/14,
         {.query_rank = 9, .kv_rank = 7, .content_head_dim = 6, .rotary_head_dim = 4, .value_head_dim = 5}),
     {3, 33}},
    {"deepseek_v3_without_a_narrow_query_groups_and_shared_experts",
     Deepseek(Config(16, 12, 2, 2, 2, 6, 13, true),
              {.experts = 5, .top_k = 1, .score = ops::RouterScore::kSigmoid}, /*dense_layers=*/0,
              /*shared=*/0, {.kv_rank = 3, .content_head_dim = 4, .rotary_head_dim = 2, .value_head_dim = 6}),
     {1, 37}},
    {"logits_in_blocks", InBlocks(Config(32, 48, 1, 2, 2, 16, 150, false)), {2, 33}},
    {"logits_in_blocks_tied", InBlocks(Config(15, 23, 1, 4, 1, 10, 130, true)), {1, 37}},
    {"no_layers", Config(8, 12, 0, 1, 1, 8, 5, true), {2, 3}},
    {"documents", Config(24, 40, 2, 4, 2, 6, 17, false), {3, 37, /*packs_documents=*/true}},
    {"documents_of_qwen3_moe",
     Sparse(Config(24, 40, 2, 4, 2, 6, 17, true), Architecture::kQwen3Moe, 5, 3, false, 7, 2),
     {2, 33, /*packs_documents=*/true}},
    {"documents_of_deepseek_v3",
     Deepseek(Config(16, 12, 2, 2, 2, 6, 13, true),
              {.experts = 5, .top_k = 1, .score = ops::RouterScore::kSigmoid}, /*dense_layers=*/0,
              /*shared=*/0, {.kv_rank = 3, .content_head_dim = 4, .rotary_head_dim = 2, .value_head_dim = 6}),
     {1, 70, /*packs_documents=*/true}},
};

// The batch: tokens, and documents of some five tokens where they are packed.
at::Tensor RandomTokens(const Shape& shape, uint64_t seed) {
  const int64_t columns = shape.batch.columns();
  const int64_t length = shape.batch.sequence_length;
  at::Tensor tokens = at::empty({shape.batch.sequences, columns}, at::kLong);
  std::mt19937_64 engine(seed);
  for (int64_t sequence = 0; sequence < shape.batch.sequences; ++sequence) {
    int64_t* const row = tokens.data_ptr<int64_t>() + sequence * columns;
    for (int64_t i = 0; i <= length; ++i) {
      row[i] = static_cast<int64_t>(engine() % static_cast<uint64_t>(shape.config.vocab_size));
    }
    int64_t start = 0;
    for (int64_t i = 0; length + 1 + i < columns; ++i) {
      start = engine() % 5 == 0 ? i : start;
      row[length + 1 + i] = start;
    }
  }
  return tokens;
}

at::Tensor RandomNumbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor numbers = at::empty(sizes, at::kDouble);
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    numbers.data_ptr<double>()[i] = normal(engine);
  }
  return numbers;
}

// Expects actual = expected up to `tolerance` of its norm, or nothing where nothing is expected.
void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  const double norm = expected.norm().item<double>();
  const at::Tensor difference = actual.to(at::kDouble).view(expected.sizes()) - expected;
  EXPECT_LE(difference.norm().item<double>(), tolerance * (norm > 0 ? norm : 1)) << what;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// The parameters that a node's backward writes gradients of.
std::vector<std::string> ParametersOf(const BoundDecoder& run, const Shape& shape, int node) {
  const std::vector<UnitParameters> units = DecoderUnits(shape.config);
  std::vector<std::string> names;
  for (const schedules::UnitPart& part : run.outline().nodes[node].backward.parameter_gradients) {
    for (const Parameter& parameter : units[part.unit].parameters) {
      if (parameter.part == part.part) {
        names.push_back(parameter.name);
      }
    }
  }
  return names;
}

std::string UnitOf(const Shape& shape, const std::string& parameter) {
  for (const UnitParameters& unit : DecoderUnits(shape.config)) {
    for (const Parameter& own : unit.parameters) {
      if (own.name == parameter) {
        return unit.name;
      }
    }
  }
  throw std::logic_error("no unit has " + parameter);
}

class BindTest : public testing::TestWithParam<Shape> {
 protected:
  BindTest() { std::cout << "seed " << kSeed << "\n"; }
};
INSTANTIATE_TEST_SUITE_P(Shapes, BindTest, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BindTest, LossAndEveryGradientMatchAutograd) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  for (const ComputeType type : {ComputeType::kFp64, ComputeType::kFp32}) {
    const double tolerance = type == ComputeType::kFp64 ? 1e-11 : 2e-5;
    BoundDecoder run(shape.config, shape.batch, type, kSeed);
    const double loss = run.Forward(tokens);
    run.Backward();

    const AutogradDecoder reference(shape.config, run.parameters(), shape.batch.packs_documents);
    const at::Tensor expected = reference.Loss(tokens);
    (expected + reference.RouterLosses()).backward();
    EXPECT_NEAR(loss / expected.item<double>(), 1, tolerance);
    ASSERT_EQ(run.parameter_gradients().size(), reference.parameters().size());
    for (const auto& [name, parameter] : reference.parameters()) {
      ExpectClose(run.parameter_gradients().at(name), parameter.grad(), tolerance, name);
    }
  }
}

// The nodes that compute one hidden state from another: each by itself, but for those of a sparse layer's
// experts.
struct Step {
  int first = 0;
  int last = 0;
};

std::vector<Step> StepsOf(const schedules::Outline& outline) {
  std::vector<Step> steps;
  for (int i = 0; i < static_cast<int>(outline.nodes.size()); ++i) {
    switch (outline.nodes[i].kind) {
      case schedules::NodeKind::kExperts:
      case schedules::NodeKind::kFinish:
        steps.back().last = i;
        break;
      default:
        steps.push_back({.first = i, .last = i});
    }
  }
  return steps;
}

// Each step alone, on inputs and output gradients that are just numbers.
TEST_P(BindTest, EveryNodeMatchesAutogradAndAddsWhereItsOperandsSay) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  const double tolerance = 1e-12;
  BoundDecoder run(shape.config, shape.batch, ComputeType::kFp64, kSeed);
  const schedules::Outline& outline = run.outline();
  run.value("tokens").copy_(tokens.flatten());
  for (const Step& step : StepsOf(outline)) {
    const schedules::Node& node = outline.nodes[step.first];
    SCOPED_TRACE(node.name);
    const AutogradDecoder reference(shape.config, run.parameters(), shape.batch.packs_documents);
    const bool is_embedding = node.kind == schedules::NodeKind::kEmbedding;
    const bool is_head = node.kind == schedules::NodeKind::kHead;
    const std::string input = is_embedding ? "" : outline.values[node.forward.reads[0]].name;
    const std::string output = outline.values[outline.nodes[step.last].forward.writes[0]].name;
    const int64_t num_tokens = shape.batch.sequences * shape.batch.sequence_length;
    const at::Tensor x =
        RandomNumbers({num_tokens, shape.config.hidden_size}, kSeed + step.first).requires_grad_();
    at::Tensor expected;
    if (is_embedding) {
      expected = reference.Embedding(tokens);
    } else if (is_head) {
      expected = reference.Head(x, tokens);
    } else if (node.kind == schedules::NodeKind::kAttention) {
      expected = reference.Attention(node.layer, x, tokens);
    } else if (node.kind == schedules::NodeKind::kRoute) {
      expected = reference.Experts(node.layer, x);
    } else {
      expected = reference.Mlp(node.layer, x);
    }
    const at::Tensor grad_output =
        is_head ? at::Tensor() : RandomNumbers(expected.sizes(), kSeed + 100 + step.first);
    expected.backward(grad_output, /*keep_graph=*/true);
    if (node.kind == schedules::NodeKind::kRoute) {
      reference.RouterLosses().backward();
    }

    if (!is_embedding) {
      run.value(input).copy_(x.detach().flatten());
    }
    for (int i = step.first; i <= step.last; ++i) {
      run.Run(i, Pass::kForward);
    }
    ExpectClose(run.value(output), expected.detach(), tolerance, output);
    if (!is_head) {
      run.gradient(output).copy_(grad_output.flatten());
    }
    for (int i = step.last; i >= step.first; --i) {
      run.Run(i, Pass::kBackward);
    }
    if (!is_embedding) {
      ExpectClose(run.gradient(input), x.grad(), tolerance, "gradient of " + input);
    }
    std::vector<std::string> parameters;
    for (int i = step.first; i <= step.last; ++i) {
      const std::vector<std::string> own = ParametersOf(run, shape, i);
      parameters.insert(parameters.end(), own.begin(), own.end());
    }
    const auto gradient_of = [&](const std::string& name) {
      const at::Tensor& gradient = reference.parameters().at(name).grad();
      return gradient.defined() ? gradient : at::zeros_like(reference.parameters().at(name));
    };
    for (const std::string& name : parameters) {
      ExpectClose(run.parameter_gradients().at(name), gradient_of(name), tolerance, name);
    }

    BoundDecoder adding(shape.config, shape.batch, ComputeType::kFp64, kSeed);
    adding.AddToGradients();
    for (int i = step.first; i <= step.last; ++i) {
      for (const int id : outline.nodes[i].backward.reads) {
        const std::string& name = outline.values[id].name;
        adding.value(name).copy_(run.value(name));
      }
    }
    if (!is_head) {
      adding.gradient(output).copy_(run.gradient(output));
    }
    if (!is_embedding) {
      adding.gradient(input).fill_(3);
    }
    for (const std::string& name : parameters) {
      adding.parameter_gradients().at(name).fill_(5);
    }
    for (int i = step.last; i >= step.first; --i) {
      adding.Run(i, Pass::kBackward);
    }
    if (!is_embedding) {
      ExpectClose(adding.gradient(input), x.grad() + 3, tolerance, "gradient of " + input);
    }
    for (const std::string& name : parameters) {
      ExpectClose(adding.parameter_gradients().at(name), gradient_of(name) + 5, tolerance, name);
    }
  }
}

// bfloat16 and what goes with it: the node kinds convert, round and sum where they should. Each rounding is
// by at most 2^-8 of a number, and there are some tens of them one behind the other in two layers.
constexpr double kBf16Tolerance = 1.0 / 32;

Precision Mixed(ComputeType compute, ComputeType transport, UnitTypes head) {
  Precision precision(compute, transport);
  precision.units["head"] = head;
  precision.units["embedding"] = head;  // they may share a matrix
  return precision;
}

const Precision kReducedPrecisions[] = {
    ComputeType::kBf16,
    {ComputeType::kBf16, ComputeType::kFp32},
    Mixed(ComputeType::kBf16, ComputeType::kBf16, Precision(ComputeType::kFp32).common),
    Mixed(ComputeType::kFp32, ComputeType::kFp32, Precision(ComputeType::kBf16).common),
};

TEST_P(BindTest, LossAndEveryGradientInReducedPrecisionAreNearAutograds) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  int number = 0;
  for (const Precision& precision : kReducedPrecisions) {
    SCOPED_TRACE(testing::Message() << "precision " << number++);
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    const double loss = run.Forward(tokens);
    run.Backward();
    AutogradDecoder reference(shape.config, run.parameters(), shape.batch.packs_documents);
    for (int layer = 0; layer < shape.config.num_hidden_layers; ++layer) {
      if (shape.config.IsSparse(layer)) {
        const bool drops = shape.config.moe.capacity.factor > 0;  // then what was chosen is another value
        const at::Tensor chosen =
            run.value("layers." + std::to_string(layer) + (drops ? ".route.ranked" : ".route.chosen"));
        reference.Choose(layer, chosen.view({-1, shape.config.moe.router.top_k}));
      }
    }
    const at::Tensor expected = reference.Loss(tokens);
    (expected + reference.RouterLosses()).backward();
    EXPECT_NEAR(loss / expected.item<double>(), 1, kBf16Tolerance / 4);
    for (const auto& [name, parameter] : reference.parameters()) {
      EXPECT_EQ(run.parameters().at(name).scalar_type() == at::kBFloat16,
                precision.Of(UnitOf(shape, name)).compute == ComputeType::kBf16);
      ExpectClose(run.parameter_gradients().at(name), parameter.grad(), kBf16Tolerance, name);
    }
  }
}

// To what is there, in whatever type it is.
TEST_P(BindTest, GradientsInReducedPrecisionAreAddedWhereOperandsSay) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  for (const Precision& precision : kReducedPrecisions) {
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    run.Forward(tokens);
    run.Backward();
    std::map<std::string, at::Tensor> once;
    for (const auto& [name, gradient] : run.parameter_gradients()) {
      once[name] = gradient.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    }
    run.AddToGradients();
    for (int i = static_cast<int>(run.outline().nodes.size()) - 1; i >= 0; --i) {
      for (const int value : run.outline().nodes[i].backward.gradient_writes) {
        if (!run.IsWrittenBefore(i, value)) {
          run.gradient(run.outline().values[value].name).zero_();  // added to as well
        }
      }
      run.Run(i, Pass::kBackward);
    }
    for (const auto& [name, gradient] : run.parameter_gradients()) {
      // Each sum is rounded once more.
      ExpectClose(gradient.contiguous(), once[name] * 2, 1.0 / 128, name);
    }
  }
}

TEST_P(BindTest, ABoundPassRepeatsBitForBitWhateverRanBefore) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  BoundDecoder run(shape.config, shape.batch, ComputeType::kFp32, kSeed);
  const double loss = run.Forward(tokens);
  run.Backward();
  std::map<std::string, at::Tensor> first;
  for (const auto& [name, gradient] : run.parameter_gradients()) {
    first[name] = gradient.clone();
  }
  run.Forward(RandomTokens(shape, kSeed + 1));
  run.Backward();
  EXPECT_EQ(run.Forward(tokens), loss);
  run.Backward();
  for (const auto& [name, gradient] : run.parameter_gradients()) {
    EXPECT_TRUE(SameBits(gradient.contiguous(), first[name])) << name;
  }
}

// Counts what LibTorch allocates on the CPU while it exists.
class CountedAllocations final : public c10::Allocator {
 public:
  CountedAllocations() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, /*priority=*/100); }
  ~CountedAllocations() override { c10::SetCPUAllocator(before_, /*priority=*/100); }

  c10::DataPtr allocate(size_t bytes) override {
    count_ += bytes > 0 ? 1 : 0;
    return before_->allocate(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    before_->copy_data(to, from, bytes);
  }
  int count() const { return count_; }

 private:
  c10::Allocator* const before_;
  int count_ = 0;
};

TEST_P(BindTest, ABoundPassAllocatesNothing) {
  const Shape& shape = GetParam();
  for (const Precision& precision : {Precision(ComputeType::kFp32), kReducedPrecisions[2]}) {
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    run.Forward(RandomTokens(shape, kSeed));
    run.Backward();
    for (int i = 0; i < static_cast<int>(run.outline().nodes.size()); ++i) {
      SCOPED_TRACE(run.outline().nodes[i].name);
      const BoundPass forward = run.Bind(i, Pass::kForward);
      const BoundPass backward = run.Bind(i, Pass::kBackward);
      const c10::InferenceMode no_gradients;
      const CountedAllocations allocations;
      forward();
      backward();
      EXPECT_EQ(allocations.count(), 0);
      at::empty({1});
      EXPECT_EQ(allocations.count(), 1) << "allocations are not counted";
    }
  }
}

TEST(BindPrecisionTest, AMatrixOfAnotherTypeThanItsNodeComputesInIsRefused) {
  const DecoderConfig config = Config(8, 12, 1, 1, 1, 8, 5, /*tied=*/true);
  Precision precision(ComputeType::kBf16);
  precision.units["head"] = Precision(ComputeType::kFp32).common;  // and not the embedding's
  BoundDecoder run(config, {1, 4}, precision, kSeed);
  try {
    run.Bind(3, Pass::kForward);
    FAIL() << "it was bound";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "head forward: part embedding is of bf16, and the node computes in fp32");
  }
}

// A recompute may leave out what was kept, and gives the bits of the forward in the rest.
TEST_P(BindTest, RecomputeGivesTheBitsOfTheForward) {
  const Shape& shape = GetParam();
  for (const Precision& precision : {Precision(ComputeType::kFp32), Precision(ComputeType::kFp64),
                                     kReducedPrecisions[0], kReducedPrecisions[2]}) {
    BoundDecoder run(shape.config, shape.batch, precision, kSeed);
    run.Forward(RandomTokens(shape, kSeed));
    for (int i = 0; i + 1 < static_cast<int>(run.outline().nodes.size()); ++i) {
      const schedules::Node& node = run.outline().nodes[i];
      std::vector<std::vector<std::string>> sets;  // of outputs that one recompute may write
      switch (node.kind) {
        case schedules::NodeKind::kEmbedding:
          sets = {{"hidden"}};
          break;
        case schedules::NodeKind::kAttention:
          sets = {{"qkv"}, {"qkv", "context", "lse"}, {"hidden", "qkv", "context", "lse"}};
          for (std::vector<std::string>& set : sets) {
            if (shape.config.latent.kv_rank > 0) {
              set.emplace_back("down");
            }
            if (shape.config.latent.query_rank > 0) {
              set.emplace_back("query_down");
            }
          }
          break;
        case schedules::NodeKind::kRoute:
          sets = {{"normed"}, {"normed", "logits"}, {"normed", "logits", "chosen", "probabilities"}};
          if (shape.config.moe.capacity.factor > 0) {
            sets.back().emplace_back("ranked");
          }
          if (shape.config.moe.shared_intermediate_size > 0) {
            sets.push_back({"normed", "shared_gate_up"});
            sets.push_back({"normed", "logits", "shared_gate_up", "shared"});
          }
          break;
        case schedules::NodeKind::kExperts:
          sets = {{"gate_up"}, {"gate_up", "made"}};
          break;
        case schedules::NodeKind::kFinish:
          sets = {{"hidden"}};
          break;
        default:
          sets = {{"gate_up"}, {"gate_up", "hidden"}};
      }
      for (const std::vector<std::string>& set : sets) {
        std::map<std::string, at::Tensor> expected;
        std::set<std::string> names;
        for (const std::string& output : set) {
          const std::string name = node.name + "." + output;
          names.insert(name);
          expected[name] = run.value(name).clone();
        }
        run.Run(i, Pass::kRecompute, names);  // fills them with NaN first
        for (const auto& [name, values] : expected) {
          EXPECT_TRUE(SameBits(run.value(name), values)) << name;
        }
      }
    }
  }
}

// The whole backward is the halves, one behind the other, whatever lies between them.
TEST_P(BindTest, HalvesOfABackwardGiveTheBitsOfTheWhole) {
  const Shape& shape = GetParam();
  const at::Tensor tokens = RandomTokens(shape, kSeed);
  for (const Precision& precision : {Precision(ComputeType::kFp32), Precision(ComputeType::kFp64),
                                     kReducedPrecisions[0], kReducedPrecisions[1], kReducedPrecisions[2]}) {
    for (const bool adds : {false, true}) {
      BoundDecoder whole(shape.config, shape.batch, precision, kSeed);
      BoundDecoder halves(shape.config, shape.batch, precision, kSeed);
      for (BoundDecoder* run : {&whole, &halves}) {
        run->Forward(tokens);
        run->Backward();
        if (adds) {
          run->AddToGradients();
        }
      }
      std::vector<int> split;
      for (int i = static_cast<int>(whole.outline().nodes.size()) - 1; i >= 0; --i) {
        if (whole.outline().nodes[i].splits_backward) {
          split.push_back(i);
          whole.Run(i, Pass::kBackward);
          halves.Run(i, Pass::kBackwardInput);
        }
      }
      // Weight halves in another order, all behind the input halves.
      for (auto node = split.rbegin(); node != split.rend(); ++node) {
        halves.Run(*node, Pass::kBackwardWeight);
      }
      for (const auto& [name, gradient] : whole.parameter_gradients()) {
        EXPECT_TRUE(SameBits(gradient.contiguous(), halves.parameter_gradients().at(name).contiguous()))
            << name << (adds ? ", added to" : "");
      }
      for (const schedules::Value& value : whole.outline().values) {
        if (value.gradient_bytes.bound > 0) {
          EXPECT_TRUE(SameBits(whole.gradient(value.name), halves.gradient(value.name))) << value.name;
        }
      }
    }
  }
}

// Rotation by the position in the sequence and not in the document changes nothing, since scores depend on
// the distance; and every target counts, also the one behind a document's end.
TEST(PackedDocumentsTest, ADocumentIsComputedAsInASequenceOfItsOwn) {
  const std::vector<int64_t> lengths = {1, 5, 33, 1, 1, 20, 9};
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (Shape packed : kShapes) {
    if (!packed.batch.packs_documents) {
      continue;
    }
    SCOPED_TRACE(packed.name);
    packed.batch = {.sequences = 1, .sequence_length = all, .packs_documents = true};
    packed.config.moe.router_aux_loss_coef = 0;  // of a microbatch: not a sum over its tokens
    packed.config.moe.router_z_loss_coef = 0;
    const at::Tensor tokens = RandomTokens(packed, kSeed);
    int64_t first = 0;
    for (const int64_t length : lengths) {
      tokens.narrow(1, all + 1 + first, length).fill_(first);
      first += length;
    }
    BoundDecoder together(packed.config, packed.batch, ComputeType::kFp64, kSeed);
    const double loss = together.Forward(tokens);
    together.Backward();

    double sum = 0;
    std::map<std::string, at::Tensor> gradients;
    first = 0;
    for (const int64_t length : lengths) {
      SCOPED_TRACE(testing::Message() << "the document of tokens " << first << " to " << first + length - 1);
      BoundDecoder alone(packed.config, {.sequences = 1, .sequence_length = length}, ComputeType::kFp64,
                         kSeed);
      sum += static_cast<double>(length) * alone.Forward(tokens.narrow(1, first, length + 1));
      alone.Backward();
      for (const auto& [name, gradient] : alone.parameter_gradients()) {
        at::Tensor& total = gradients.try_emplace(name, at::zeros_like(gradient)).first->second;
        total = total + gradient * static_cast<double>(length);
      }
      for (const schedules::Value& value : together.outline().values) {
        if (value.name.ends_with(".hidden")) {
          const at::Tensor rows = together.value(value.name).view({all, -1}).narrow(0, first, length);
          ExpectClose(alone.value(value.name), rows.contiguous().flatten(), 1e-12, value.name);
        }
      }
      first += length;
    }
    EXPECT_NEAR(loss * static_cast<double>(all) / sum, 1, 1e-12);
    for (const auto& [name, gradient] : together.parameter_gradients()) {
      ExpectClose(gradient * static_cast<double>(all), gradients.at(name), 1e-11, name);
    }
  }
}

class BindRefusalTest : public testing::Test {
 protected:
  using Operands = std::vector<OperandMemory>;

  // The message with which binding is refused.
  std::string Refusal(
      int node, Pass pass, const std::set<std::string>& recompute = {},
      const std::function<void(Operands&)>& change = [](Operands&) {}) {
    try {
      run_.Bind(node, pass, recompute, change);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "nothing is refused";
  }

  BoundDecoder run_{Config(8, 8, 1, 1, 1, 8, 8, false), {1, 4}, ComputeType::kFp32, kSeed};
  static constexpr int kEmbedding = 0;
  static constexpr int kAttention = 1;
  static constexpr int kMlp = 2;
  static constexpr int kHead = 3;
};

TEST_F(BindRefusalTest, PassesThatANodeDoesNotHave) {
  for (const int node : {kEmbedding, kHead}) {
    EXPECT_THAT(Refusal(node, Pass::kBackwardInput), testing::HasSubstr("no such pass"));
    EXPECT_THAT(Refusal(node, Pass::kBackwardWeight), testing::HasSubstr("no such pass"));
  }
  EXPECT_EQ(Refusal(kHead, Pass::kRecompute), "head recompute: these nodes have no such pass");
}

TEST_F(BindRefusalTest, ARecomputeWithoutWhatItsOutputsAreComputedFrom) {
  EXPECT_EQ(Refusal(kMlp, Pass::kRecompute, {"layers.0.mlp.hidden"}),
            "mlp recompute: hidden is computed from gate_up, which must be recomputed with it");
  EXPECT_THAT(Refusal(kAttention, Pass::kRecompute, {"layers.0.attention.context", "layers.0.attention.lse"}),
              testing::HasSubstr("context is computed from qkv"));
}

TEST_F(BindRefusalTest, OperandsThatAreNotTheDeclarations) {
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands.pop_back(); }),
              testing::HasSubstr("only 4 operands"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands.push_back({}); }),
              testing::HasSubstr("6 operands, not 5"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[2].bytes -= 1; }),
              testing::HasSubstr("gate_up takes 256 bytes"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[0].begin = nullptr; }),
              testing::HasSubstr("x takes 128 bytes"));
  EXPECT_THAT(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[4].bytes -= 1; }),
              testing::HasSubstr("are not in its memory"));
}

TEST_F(BindRefusalTest, ABlockWithAGap) {
  EXPECT_EQ(Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[3].parameters[2] += 4; }),
            "mlp forward: up does not follow gate without a gap");
  EXPECT_THAT(
      Refusal(kMlp, Pass::kForward, {}, [](Operands& operands) { operands[3].parameters.pop_back(); }),
      testing::HasSubstr("part mlp has 4 parameters, its memory 3"));
}

}  // namespace
}  // namespace tandem::model
