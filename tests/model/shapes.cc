// SPDX-License-Identifier: Apache-2.0
#include "tests/model/shapes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tandem::model::test {
namespace {

constexpr MambaMixer kMixers = {
    .heads = 4, .head_dim = 5, .state = 6, .groups = 2, .conv_width = 4, .chunk = 8};
constexpr GatedDeltaNet kSharedDelta = {
    .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .conv_width = 4, .chunk = 8};
constexpr GatedDeltaNet kOddDelta = {
    .key_heads = 3, .value_heads = 3, .key_dim = 10, .value_dim = 17, .conv_width = 3, .chunk = 40};
constexpr LatentAttention kWideLatent = {
    .kv_rank = 7, .content_head_dim = 6, .rotary_head_dim = 4, .value_head_dim = 5};
constexpr LatentAttention kNarrowLatent = {
    .kv_rank = 3, .content_head_dim = 4, .rotary_head_dim = 2, .value_head_dim = 6};

enum class Family : uint8_t { kMixtral, kQwen3Moe, kDeepseek };

DecoderConfig Sparse(DecoderConfig config, Family family, int64_t experts, int64_t chosen, bool normalize,
                     int64_t inner, int64_t step) {
  config.names = family == Family::kMixtral ? ParameterNames::kMixtral : ParameterNames::kUsual;
  config.qk_norm = family == Family::kQwen3Moe ? QkNorm::kHead : QkNorm::kNone;
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
  config = Sparse(config, Family::kDeepseek, router.experts, router.top_k, router.normalize, 7, 1);
  config.moe.router = router;
  config.moe.first_k_dense_replace = dense_layers;
  config.moe.shared_intermediate_size = shared;
  config.latent = latent;
  return config;
}

// Dense: as Qwen3, Qwen2, OLMo-2 and Mistral have them.
DecoderConfig NormedHeads(DecoderConfig config) {
  config.qk_norm = QkNorm::kHead;
  return config;
}

DecoderConfig RotatedInPart(DecoderConfig config, double factor) {
  config.partial_rotary_factor = factor;
  return config;
}

DecoderConfig BiasedThroughout(DecoderConfig config) {
  config.qkv_bias = true;
  config.output_bias = true;
  return config;
}

DecoderConfig Biased(DecoderConfig config) {
  config.qkv_bias = true;
  return config;
}

DecoderConfig NormedAfter(DecoderConfig config) {
  config.names = ParameterNames::kOlmo2;
  config.qk_norm = QkNorm::kWhole;
  config.norms_after = true;
  return config;
}

DecoderConfig Windowed(DecoderConfig config, int64_t window, std::vector<int64_t> layers) {
  config.sliding_window = window;
  config.window_layers = std::move(layers);
  return config;
}

// With a head whose logits are in memory for so many bytes at a time.
DecoderConfig InChunks(DecoderConfig config, int64_t bytes) {
  config.most_logit_bytes = bytes;
  return config;
}

// Layers as a pattern has them, some of which may be Mamba-2 mixers and experts.
DecoderConfig Patterned(DecoderConfig config, const std::string& pattern, MambaMixer mamba) {
  const LayerPattern layers = ParseLayerPattern(pattern).value();
  for (const LogicalLayer& layer : layers.segments.front().layers) {
    config.pattern.push_back(layer.symbols);
  }
  config.num_hidden_layers = static_cast<int64_t>(config.pattern.size());
  config.mamba = mamba;
  config.qk_norm = QkNorm::kNone;
  return config;
}

DecoderConfig WithDelta(DecoderConfig config, GatedDeltaNet delta) {
  config.delta = delta;
  return config;
}

DecoderConfig WithSharedExpert(DecoderConfig config, int64_t width) {
  config.moe.shared_intermediate_size = width;
  return config;
}

// As Granite has them.
DecoderConfig Multiplied(DecoderConfig config) {
  config.embedding_multiplier = 12;
  config.attention_multiplier = 0.15;
  config.residual_multiplier = 0.22;
  config.logits_scaling = 6;
  return config;
}

// As Mamba-2 and Nemotron-H have theirs.
DecoderConfig OfMixers(DecoderConfig config) {
  config.names = ParameterNames::kMixer;
  config.rotates = false;
  config.activation = Activation::kSquaredRelu;
  return config;
}

// As Qwen3-Next has them.
DecoderConfig Gated(DecoderConfig config, int64_t shared) {
  config.names = ParameterNames::kQwen3Next;
  config.qk_norm = QkNorm::kHead;
  config.attention_gate = true;
  config.norms_add_one = true;
  config.moe.shared_intermediate_size = shared;
  config.moe.shared_gate = shared > 0;
  return config;
}

Precision Mixed(ComputeType compute, ComputeType transport, UnitTypes head) {
  Precision precision(compute, transport);
  precision.units["head"] = head;
  precision.units["embedding"] = head;  // they may share a matrix
  return precision;
}

}  // namespace

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

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

const std::vector<Shape>& Shapes() {
  static const auto& shapes = *new std::vector<Shape>{
      {"untied", Config(32, 48, 2, 2, 2, 16, 40, false), {2, 33}},
      {"tied", Config(32, 48, 2, 2, 2, 16, 40, true), {2, 33}},
      {"grouped_queries", Config(24, 40, 3, 4, 2, 6, 17, false), {3, 20}},
      {"grouped_queries_tied_odd_sizes", Config(15, 23, 2, 4, 1, 10, 13, true), {1, 37}},
      {"one_token", Config(8, 12, 1, 1, 1, 8, 5, false), {1, 1}},
      {"mixtral",
       Sparse(Config(32, 24, 2, 2, 2, 16, 40, false), Family::kMixtral, 8, 2, true, 24, 1),
       {2, 33}},
      {"qwen3_moe_with_dense_layers_around",
       Sparse(Config(24, 40, 3, 4, 2, 6, 17, true), Family::kQwen3Moe, 5, 3, false, 7, 2),
       {3, 20}},
      {"mixtral_that_drops_by_probability",
       Dropping(Sparse(Config(32, 24, 2, 2, 2, 16, 40, false), Family::kMixtral, 8, 2, true, 24, 1), 0.9,
                ops::DropPolicy::kProbability),
       {2, 33}},
      {"qwen3_moe_that_drops_by_position",
       Dropping(Sparse(Config(24, 40, 2, 4, 2, 6, 17, true), Family::kQwen3Moe, 5, 3, false, 7, 1), 1,
                ops::DropPolicy::kPosition),
       {3, 20}},
      {"mixtral_padded_that_drops_by_probability",
       Padded(Dropping(Sparse(Config(32, 24, 2, 2, 2, 16, 40, false), Family::kMixtral, 8, 2, true, 24, 1),
                       0.9, ops::DropPolicy::kProbability)),
       {2, 33}},
      // Every expert computes as many rows as there are tokens, and drops none.
      {"qwen3_moe_padded_with_room_for_all",
       Padded(Dropping(Sparse(Config(24, 40, 2, 4, 2, 6, 17, true), Family::kQwen3Moe, 5, 3, false, 7, 1), 5,
                       ops::DropPolicy::kPosition)),
       {3, 20}},
      // Most experts have no token.
      {"one_token_of_a_sparse_layer",
       Sparse(Config(8, 12, 1, 1, 1, 8, 5, false), Family::kQwen3Moe, 16, 1, false, 3, 1),
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
                /*shared=*/0, kNarrowLatent),
       {1, 37}},
      {"deepseek_v2",
       Deepseek(Config(24, 40, 2, 4, 4, 10, 17, false), {.experts = 5, .top_k = 3, .scale = 1.5},
                /*dense_layers=*/1, /*shared=*/14, kWideLatent),
       {3, 33}},
      // Six experts of three groups of four, compared by their best.
      {"deepseek_v2_of_groups",
       Deepseek(
           Config(24, 40, 2, 4, 4, 10, 17, false),
           {.experts = 20, .top_k = 6, .groups = 5, .groups_per_token = 3, .best_of_group = 1, .scale = 1.5},
           /*dense_layers=*/1, /*shared=*/14, kWideLatent),
       {3, 33}},
      {"qwen3", NormedHeads(Config(24, 40, 2, 4, 2, 6, 17, true)), {3, 20}},
      // Four dims of six.
      {"heads_rotated_in_part", RotatedInPart(Config(24, 40, 2, 4, 2, 6, 17, false), 0.7), {3, 20}},
      {"normed_heads_rotated_in_part",
       RotatedInPart(NormedHeads(Config(24, 40, 2, 4, 2, 8, 17, true)), 0.25),
       {3, 20}},
      {"qwen2", Biased(Config(24, 40, 2, 4, 2, 6, 17, true)), {3, 20}},
      {"llama_with_biases", BiasedThroughout(Config(24, 40, 2, 4, 2, 6, 17, true)), {3, 20}},
      {"qwen3_with_biases", BiasedThroughout(NormedHeads(Config(24, 40, 2, 4, 2, 6, 17, false))), {3, 20}},
      {"olmo2_with_biases", BiasedThroughout(NormedAfter(Config(24, 40, 2, 4, 2, 6, 17, false))), {3, 20}},
      {"qwen2_with_windows_in_some_layers",
       Windowed(Biased(Config(24, 40, 3, 4, 2, 6, 17, false)), 5, {1, 2}),
       {2, 70}},
      {"olmo2", NormedAfter(Config(24, 40, 2, 4, 2, 6, 17, false)), {3, 20}},
      {"mistral", Windowed(Config(32, 48, 2, 4, 2, 8, 40, false), 20, {0, 1}), {2, 150}},
      {"a_window_of_one_token", Windowed(Config(8, 12, 1, 1, 1, 8, 5, false), 1, {0}), {1, 7}},
      {"a_window_as_long_as_a_sequence", Windowed(Config(8, 12, 1, 2, 1, 4, 5, false), 7, {0}), {2, 7}},
      // Two, four and seven chunks in bf16, fp32 and fp64; two, five and ten.
      {"logits_in_chunks", InChunks(Config(32, 48, 1, 2, 2, 16, 150, false), 12'000), {2, 33}},
      {"logits_in_chunks_tied", InChunks(Config(15, 23, 1, 4, 1, 10, 130, true), 5000), {1, 37}},
      {"logits_of_a_token_at_a_time", InChunks(Config(8, 12, 0, 1, 1, 8, 5, false), 1), {2, 3}},
      {"no_layers", Config(8, 12, 0, 1, 1, 8, 5, true), {2, 3}},
      {"hybrid",
       WithSharedExpert(
           Patterned(Sparse(Config(24, 40, 4, 4, 2, 6, 17, false), Family::kQwen3Moe, 5, 3, false, 7, 1),
                     "[*E][M-]M[M*E]", kMixers),
           /*width=*/11),
       {2, 33}},
      {"mamba2",
       OfMixers(
           Patterned(Config(15, 0, 2, 0, 0, 0, 13, true), "MM",
                     {.heads = 3, .head_dim = 10, .state = 17, .groups = 1, .conv_width = 3, .chunk = 40})),
       {1, 37}},
      {"nemotron_h",
       OfMixers(Patterned(Config(24, 40, 4, 4, 2, 6, 17, false), "M-*-",
                          {.heads = 6,
                           .head_dim = 4,
                           .state = 3,
                           .groups = 3,
                           .conv_width = 4,
                           .chunk = 7,
                           .least_step = 0.6})),
       {3, 20}},
      {"gated_delta_nets",
       WithDelta(
           Patterned(Sparse(Config(24, 40, 2, 4, 2, 6, 17, false), Family::kQwen3Moe, 5, 3, false, 7, 1),
                     "[GE]M", kMixers),
           kSharedDelta),
       {2, 33}},
      {"documents_of_gated_delta_nets",
       WithDelta(Patterned(Config(15, 20, 2, 1, 1, 4, 13, true), "G[*G]", {}), kOddDelta),
       {2, 37, /*packs_documents=*/true}},
      {"qwen3_next",
       Gated(WithDelta(
                 Patterned(Sparse(Config(24, 40, 3, 4, 2, 6, 17, false), Family::kQwen3Moe, 5, 3, true, 7, 1),
                           "[GE][*-][*E]", {}),
                 kSharedDelta),
             /*shared=*/9),
       {2, 33}},
      {"documents_of_qwen3_next",
       Gated(WithDelta(Patterned(Config(15, 20, 2, 3, 1, 10, 13, true), "[G-][*-]", {}), kOddDelta),
             /*shared=*/0),
       {2, 37, /*packs_documents=*/true}},
      {"documents_of_a_hybrid",
       Patterned(Config(24, 40, 3, 4, 2, 6, 17, false), "M[M*-]", kMixers),
       {3, 37, /*packs_documents=*/true}},
      {"multipliers", Multiplied(Config(24, 40, 2, 4, 2, 6, 17, true)), {3, 20}},
      {"multipliers_of_logits_in_chunks",
       InChunks(Multiplied(Config(32, 48, 1, 2, 2, 16, 150, false)), 12'000),
       {2, 33}},
      {"multipliers_of_a_hybrid",
       Multiplied(WithSharedExpert(
           Patterned(Sparse(Config(24, 40, 3, 4, 2, 6, 17, true), Family::kQwen3Moe, 5, 3, true, 7, 1),
                     "[ME][*E][M-]",
                     {.heads = 4, .head_dim = 5, .state = 6, .groups = 1, .conv_width = 4, .chunk = 8}),
           /*width=*/11)),
       {2, 33}},
      {"documents", Config(24, 40, 2, 4, 2, 6, 17, false), {3, 37, /*packs_documents=*/true}},
      {"documents_with_windows",
       Windowed(Config(24, 40, 2, 4, 2, 6, 17, false), 4, {0}),
       {3, 37, /*packs_documents=*/true}},
      {"documents_of_olmo2",
       NormedAfter(Config(24, 40, 2, 4, 4, 6, 17, false)),
       {3, 37, /*packs_documents=*/true}},
      {"documents_of_qwen3_moe",
       Sparse(Config(24, 40, 2, 4, 2, 6, 17, true), Family::kQwen3Moe, 5, 3, false, 7, 2),
       {2, 33, /*packs_documents=*/true}},
      {"documents_of_deepseek_v3",
       Deepseek(Config(16, 12, 2, 2, 2, 6, 13, true),
                {.experts = 5, .top_k = 1, .score = ops::RouterScore::kSigmoid}, /*dense_layers=*/0,
                /*shared=*/0, kNarrowLatent),
       {1, 70, /*packs_documents=*/true}},
  };
  return shapes;
}

const std::vector<Precision>& ReducedPrecisions() {
  static const auto& precisions = *new std::vector<Precision>{
      ComputeType::kBf16,
      {ComputeType::kBf16, ComputeType::kFp32},
      Mixed(ComputeType::kBf16, ComputeType::kBf16, Precision(ComputeType::kFp32).common),
      Mixed(ComputeType::kFp32, ComputeType::kFp32, Precision(ComputeType::kBf16).common),
  };
  return precisions;
}

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

void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  const double norm = expected.norm().item<double>();
  const at::Tensor difference = actual.to(at::kDouble).view(expected.sizes()) - expected;
  EXPECT_LE(difference.norm().item<double>(), tolerance * (norm > 0 ? norm : 1)) << what;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace tandem::model::test
