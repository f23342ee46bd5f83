// SPDX-License-Identifier: Apache-2.0
// Models whose layers a pattern lists: defaults, files of Hugging Face, and the way out again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobspec/decoder_config.h"
#include "jobspec/hugging_face_export.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_function.h"
#include "jobspec/name_list.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSpec SpecWith(const std::string& model) {
  return ReadText(absl::StrCat("model: ", model,
                               "\ndata: {train: /data}\n"
                               "training: {steps: 10, sequence_length: 64, micro_batch_size: 1, "
                               "global_batch_size: 8}\nresources: {device: cpu}\n"),
                  "job.yaml")
      .spec;
}

constexpr char kHybrid[] =
    "{model_type: hybrid, hybrid_pattern: \"[M*-]M[*E]\", hidden_size: 64, intermediate_size: 96, "
    "num_attention_heads: 4, partial_rotary_factor: 0.5, vocab_size: 320, "
    "moe: {num_experts: 4, num_experts_per_tok: 2, shared_expert_intermediate_size: 48}}";
constexpr char kDepths[] =
    "{model_type: hybrid, hybrid_pattern: \"M[*E]/M*E/M*E\", hidden_size: 64, num_attention_heads: 4, "
    "vocab_size: 320, moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 96}}";
constexpr char kDelta[] =
    "{model_type: hybrid, hybrid_pattern: \"[GE]G[*-]\", hidden_size: 256, intermediate_size: 96, "
    "num_attention_heads: 4, vocab_size: 320, moe: {num_experts: 4, num_experts_per_tok: 2}}";
constexpr char kMamba2[] = "{model_type: mamba2, num_hidden_layers: 3, hidden_size: 64, vocab_size: 320}";
constexpr char kQwen3Next[] =
    "{model_type: qwen3_next, hybrid_pattern: \"[GE][*-][GE][*E]\", hidden_size: 64, intermediate_size: 96, "
    "num_attention_heads: 4, partial_rotary_factor: 0.25, vocab_size: 320, "
    "gated_delta_net: {key_head_dim: 16, value_head_dim: 8}, "
    "moe: {num_experts: 4, num_experts_per_tok: 2, shared_expert_intermediate_size: 48}}";
constexpr char kNemotron[] =
    "{model_type: nemotron_h, hybrid_pattern: M-*-, hidden_size: 64, intermediate_size: 96, "
    "num_attention_heads: 4, vocab_size: 320, mamba: {num_heads: 6, head_dim: 16, n_groups: 3}}";

constexpr char kGranite[] =
    "{model_type: granitemoehybrid, hybrid_pattern: \"[ME][*E][ME]\", hidden_size: 64, num_attention_heads: "
    "4, "
    "vocab_size: 320, rotary_embedding: false, embedding_multiplier: 12, residual_multiplier: 0.22, "
    "logits_scaling: 16, moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24, "
    "shared_expert_intermediate_size: 32}}";
constexpr char kDenseGranite[] =
    "{model_type: granitemoehybrid, hybrid_pattern: \"[M-][*-]\", hidden_size: 64, intermediate_size: 96, "
    "num_attention_heads: 4, vocab_size: 320, attention_multiplier: 0.1}";
constexpr char kBamba[] =
    "{model_type: bamba, hybrid_pattern: \"[M-][*-][M-]\", hidden_size: 64, intermediate_size: 96, "
    "num_attention_heads: 4, vocab_size: 320, mamba: {num_heads: 8, head_dim: 16}}";

constexpr const char* kModels[] = {kHybrid,  kDepths,       kDelta, kMamba2,   kNemotron,
                                   kGranite, kDenseGranite, kBamba, kQwen3Next};

TEST(PatternTest, AResolvedJobIsValid) {
  for (const char* model : kModels) {
    const v1::JobSpec spec = SpecWith(model);
    EXPECT_EQ(ToText(Validate(spec)), "") << model;
    EXPECT_EQ(ToText(Validate(Resolve(spec))), "") << model;
  }
}

// Beside layers of experts, too, which other models would have instead.
TEST(PatternTest, NodesOfSomeLayersMayBeRecomputed) {
  v1::JobSpec spec = SpecWith(kHybrid);
  spec.mutable_training()->set_recompute("attention,mlp,mamba");
  spec.mutable_graphs()->set_scope("attention,mlp,mamba,router");
  EXPECT_EQ(ToText(Validate(spec)), "");
  spec = SpecWith(kDelta);
  spec.mutable_training()->set_recompute("gated_delta,mlp");
  spec.mutable_graphs()->set_scope("mamba");
  EXPECT_EQ(ToText(Validate(spec)), "");
}

TEST(PatternTest, PatternAndLayerCountAgree) {
  EXPECT_EQ(Resolve(SpecWith(kHybrid)).model().num_hidden_layers(), 3);
  EXPECT_EQ(Resolve(SpecWith(kMamba2)).model().hybrid_pattern(), "MMM");
}

TEST(PatternTest, MixersHaveTheirDefaults) {
  const v1::JobSpec mamba = Resolve(SpecWith(kMamba2));
  ExpectFields(mamba.model().mamba(),
               "num_heads: 2 head_dim: 64 state_size: 128 n_groups: 1 conv_kernel: 4 chunk_size: 256");
  EXPECT_FALSE(mamba.model().has_rope_theta()) << "nothing is rotated";
  EXPECT_EQ(mamba.training().optimizer().no_weight_decay(), kMixersNoWeightDecay);
  const v1::JobSpec delta = Resolve(SpecWith(kDelta));
  ExpectFields(delta.model().gated_delta_net(),
               "num_key_heads: 2 num_value_heads: 4 key_head_dim: 128 value_head_dim: 128 conv_kernel: 4 "
               "chunk_size: 64");
  EXPECT_FALSE(delta.model().has_mamba());
  EXPECT_EQ(delta.training().optimizer().no_weight_decay(), kMixersNoWeightDecay);
}

TEST(PatternTest, ModelHasItsPatternsLayers) {
  using model::LayerSymbol;
  const model::DecoderConfig hybrid = ModelConfigOf(Resolve(SpecWith(kHybrid)).model());
  EXPECT_THAT(hybrid.pattern,
              ElementsAre(ElementsAre(LayerSymbol::kMamba, LayerSymbol::kAttention, LayerSymbol::kMlp),
                          ElementsAre(LayerSymbol::kMamba),
                          ElementsAre(LayerSymbol::kAttention, LayerSymbol::kExperts)));
  EXPECT_TRUE(hybrid.rotates);
  EXPECT_EQ(hybrid.partial_rotary_factor, 0.5);
  EXPECT_EQ(hybrid.moe.shared_intermediate_size, 48);
  EXPECT_EQ(hybrid.mamba.least_step, 0);
  const model::DecoderConfig nemotron = ModelConfigOf(Resolve(SpecWith(kNemotron)).model());
  EXPECT_EQ(nemotron.names, model::ParameterNames::kMixer);
  EXPECT_EQ(nemotron.activation, model::Activation::kSquaredRelu);
  EXPECT_FALSE(nemotron.rotates);
  EXPECT_EQ(nemotron.mamba.least_step, 0.001);
  const model::DecoderConfig bamba = ModelConfigOf(Resolve(SpecWith(kBamba)).model());
  EXPECT_EQ(bamba.names, model::ParameterNames::kBamba);
  EXPECT_EQ(bamba.partial_rotary_factor, 0.5);
}

TEST(PatternTest, GraniteHasMultipliersAndMayNotRotate) {
  const v1::Model resolved = Resolve(SpecWith(kGranite)).model();
  EXPECT_FALSE(resolved.has_rope_theta());
  const model::DecoderConfig config = ModelConfigOf(resolved);
  EXPECT_EQ(config.names, model::ParameterNames::kGranite);
  EXPECT_FALSE(config.rotates);
  EXPECT_EQ(config.embedding_multiplier, 12);
  EXPECT_EQ(config.attention_multiplier, 0.25) << "that of heads of 16";
  EXPECT_EQ(config.residual_multiplier, 0.22);
  EXPECT_EQ(config.logits_scaling, 16);
  EXPECT_TRUE(config.moe.router.normalize);
  EXPECT_EQ(config.moe.shared_intermediate_size, 32);
  EXPECT_TRUE(ModelConfigOf(Resolve(SpecWith(kDenseGranite)).model()).rotates);
}

TEST(PatternTest, DepthsAreLayersBehindTheOthers) {
  using model::LayerSymbol;
  const v1::JobSpec resolved = Resolve(SpecWith(kDepths));
  EXPECT_EQ(resolved.model().num_hidden_layers(), 2);
  EXPECT_EQ(resolved.training().mtp_loss_weight(), 0.1);
  const model::DecoderConfig config = ModelConfigOf(resolved.model());
  EXPECT_EQ(config.depths.number, 2);
  EXPECT_FALSE(config.depths.numbers_letters);
  const std::vector<LayerSymbol> depth = {LayerSymbol::kMamba, LayerSymbol::kAttention,
                                          LayerSymbol::kExperts};
  ASSERT_EQ(config.pattern.size(), 4);
  EXPECT_EQ(config.pattern[2], depth);
  EXPECT_EQ(config.pattern[3], depth);
  EXPECT_FALSE(Resolve(SpecWith(kHybrid)).training().has_mtp_loss_weight());
}

// Layers that would have the same names are numbered.
TEST(PatternTest, DepthsAloneMayRepeatALetter) {
  const v1::JobSpec spec =
      SpecWith("{model_type: hybrid, hybrid_pattern: /MM, hidden_size: 64, vocab_size: 320}");
  EXPECT_EQ(ToText(Validate(spec)), "");
  EXPECT_EQ(ToText(Validate(Resolve(spec))), "");
  const model::DecoderConfig config = ModelConfigOf(Resolve(spec).model());
  EXPECT_EQ(config.num_hidden_layers, 0);
  EXPECT_TRUE(config.depths.numbers_letters);
}

TEST(PatternTest, ChunksChangeNoFunction) {
  const v1::Model model = Resolve(SpecWith(kNemotron)).model();
  v1::Model other = model;
  other.mutable_mamba()->set_chunk_size(32);
  const auto differences = ModelDifferences(ModelFunctionText(other), model);
  ASSERT_TRUE(differences.ok());
  EXPECT_THAT(*differences, ElementsAre());
  const v1::Model delta = Resolve(SpecWith(kDelta)).model();
  other = delta;
  other.mutable_gated_delta_net()->set_chunk_size(32);
  EXPECT_THAT(ModelDifferences(ModelFunctionText(other), delta).value(), ElementsAre());
}

TEST(PatternTest, ExportedConfigReadsBack) {
  const platform::TemporaryFolder folder;
  for (const char* model : kModels) {
    const v1::Model resolved = Resolve(SpecWith(model)).model();
    const auto text =
        ExportedConfig(/*source=*/"", /*is_origin=*/false, /*dataset=*/"", resolved, /*bf16=*/false, 64);
    ASSERT_TRUE(text.ok());
    v1::JobSpec read = SpecWith(model);
    read.mutable_model()->Clear();
    read.mutable_model()->set_hugging_face(folder.Write("model/config.json", *text));
    EXPECT_EQ(ToText(Localize(read)), "") << *text;
    EXPECT_EQ(ToText(Validate(read)), "") << *text;
    const auto differences = ModelDifferences(ModelFunctionText(Resolve(read).model()), resolved);
    ASSERT_TRUE(differences.ok());
    EXPECT_THAT(*differences, ElementsAre()) << *text;
  }
}

TEST(PatternTest, ExportedGranitesHaveSizesThatTransformersTakes) {
  const auto exported = [](const v1::JobSpec& spec) {
    return ExportedConfig(/*source=*/"", /*is_origin=*/false, /*dataset=*/"", Resolve(spec).model(),
                          /*bf16=*/false, 64)
        .value();
  };
  v1::JobSpec experts = SpecWith(kGranite);
  experts.mutable_model()->set_intermediate_size(96);
  EXPECT_EQ(ToText(Validate(experts)), "");
  EXPECT_THAT(exported(experts), HasSubstr("\"intermediate_size\": 24,"));
  v1::JobSpec attentions = SpecWith(kDenseGranite);
  attentions.mutable_model()->set_hybrid_pattern("[*-][*-]");
  attentions.mutable_model()->set_hidden_size(96);
  EXPECT_THAT(exported(attentions), HasSubstr("\"mamba_n_heads\": 1,"))
      << "its default of 128 heads does not divide twice 96";
}

// Reads a config.json; what it says of the file, or nothing.
struct FromConfig {
  explicit FromConfig(const std::string& config) : spec(SpecWith(kMamba2)) {
    const platform::TemporaryFolder folder;
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_hugging_face(folder.Write("model/config.json", config));
    errors = ToText(Localize(spec));
  }

  v1::JobSpec spec;
  std::string errors;
};

TEST(PatternTest, PythonsInfinityIsRead) {
  for (const char* infinity : {"Infinity", "{\"__float__\": \"Infinity\"}"}) {
    const FromConfig read(
        absl::StrCat(R"({"model_type": "mamba2", "time_step_limit": [0.0, )", infinity, "]}"));
    EXPECT_EQ(read.errors, "");
    EXPECT_EQ(read.spec.model().mamba().num_heads(), 128);
  }
}

TEST(PatternTest, NemotronsLayersAreLettersOrNames) {
  const std::string names = R"("layers_block_type": ["mamba", "mlp", "full_attention", "linear_attention"])";
  for (const std::string& layers : {names, std::string("\"hybrid_override_pattern\": \"M-*M\"")}) {
    const FromConfig read(absl::StrCat(R"({"model_type": "nemotron_h", )", layers, "}"));
    EXPECT_EQ(read.errors, "");
    EXPECT_EQ(read.spec.model().hybrid_pattern(), "M-*M");
    EXPECT_EQ(read.spec.model().intermediate_size(), 21504);
  }
  const FromConfig without(R"({"model_type": "nemotron_h", "hybrid_override_pattern": "MM"})");
  EXPECT_EQ(without.errors, "");
  EXPECT_FALSE(without.spec.model().has_num_attention_heads()) << "no layer attends";
}

TEST(PatternTest, GranitesLayersAreNamesAndBambasPlaces) {
  const FromConfig granite(R"({"model_type": "granitemoehybrid", "num_hidden_layers": 3,
                              "layer_types": ["mamba", "full_attention", "linear_attention"]})");
  EXPECT_EQ(granite.errors, "");
  ExpectFields(granite.spec.model(), R"(hybrid_pattern: "[ME][*E][ME]" rotary_embedding: false
                                        mamba { head_dim: 64 } moe { moe_intermediate_size: 11008 })");
  const FromConfig dense(R"({"model_type": "granitemoehybrid", "num_hidden_layers": 1,
                            "num_local_experts": 0, "layer_types": ["attention"],
                            "position_embedding_type": "rope"})");
  EXPECT_EQ(dense.errors, "");
  ExpectFields(dense.spec.model(),
               R"(hybrid_pattern: "[*-]" rotary_embedding: true intermediate_size: 1024)");
  const FromConfig bamba(R"({"model_type": "bamba", "num_hidden_layers": 3, "attn_layer_indices": [2]})");
  EXPECT_EQ(bamba.errors, "");
  EXPECT_EQ(bamba.spec.model().hybrid_pattern(), "[M-][M-][*-]");
}

TEST(PatternTest, Qwen3NextsLayersFollowFromIntervalsAndLists) {
  const auto pattern = [](const std::string& keys) {
    const FromConfig read(absl::StrCat(R"({"model_type": "qwen3_next", "num_hidden_layers": 4)", keys, "}"));
    EXPECT_EQ(read.errors, "");
    return read.spec.model().hybrid_pattern();
  };
  EXPECT_EQ(pattern(""), "[GE][GE][GE][*E]");
  EXPECT_EQ(pattern(R"(, "full_attention_interval": 2, "decoder_sparse_step": 2)"), "[G-][*E][G-][*E]");
  EXPECT_EQ(pattern(R"(, "mlp_only_layers": [0, 2], "layer_types":
                     ["full_attention", "linear_attention", "linear_attention", "linear_attention"])"),
            "[*-][GE][G-][GE]");
  EXPECT_EQ(pattern(R"(, "num_experts": 0)"), "[G-][G-][G-][*-]");
}

TEST(PatternTest, Qwen3NextHasGatesAndShiftedNorms) {
  const model::DecoderConfig config = ModelConfigOf(Resolve(SpecWith(kQwen3Next)).model());
  EXPECT_TRUE(config.attention_gate && config.norms_add_one && config.moe.shared_gate);
  EXPECT_EQ(config.moe.shared_intermediate_size, 48);
  EXPECT_EQ(config.names, model::ParameterNames::kQwen3Next);
  EXPECT_EQ(config.qk_norm, model::QkNorm::kHead);
  const model::DecoderConfig hybrid = ModelConfigOf(Resolve(SpecWith(kHybrid)).model());
  EXPECT_FALSE(hybrid.attention_gate || hybrid.norms_add_one || hybrid.moe.shared_gate);
}

TEST(PatternTest, UncomputedConfigsAreRefusedByName) {
  const std::pair<std::string, std::string> kCases[] = {
      {R"("mamba2", "time_step_limit": [0.0, 1.0])", "time_step_limit [0.0,1.0] is not allowed"},
      {R"("mamba2", "_name": "an Infinity \" Infinity", "mine": "Infinity")", "a file with mine"},
      {R"("mamba2", "head_dim": "auto")", R"(head_dim "auto" is not allowed; allowed: an integer)"},
      {R"("mamba2", "expand": 3)", "expand 3 times hidden_size, and num_heads times head_dim is not allowed"},
      {R"("nemotron_h", "layers_block_type": ["mamba", "lstm"])", R"(a layer "lstm" is not allowed)"},
      {R"("nemotron_h", "hybrid_override_pattern": "M*", "attention_head_dim": 64)",
       "attention_head_dim 64 and head_dim 128 is not allowed"},
      {R"("bamba", "num_hidden_layers": 2, "attn_layer_indices": [2])",
       "attn_layer_indices [2] is not allowed; allowed: a list of layers from 0 to 1"},
      {R"("bamba", "num_hidden_layers": 1, "layer_types": ["attention"])",
       R"(layer_types ["attention"] is not allowed; allowed: the same layers as attn_layer_indices)"},
      {R"("bamba", "attn_layer_indices": 3)",
       "attn_layer_indices 3 is not allowed; allowed: a list of layers from 0 to 31"},
      {R"("bamba", "num_hidden_layers": 0)", "num_hidden_layers 0 is not allowed; allowed: 1 to 1024"},
      {R"("bamba", "mamba_d_head": 32)",
       "mamba_expand 2 times hidden_size, and mamba_n_heads times mamba_d_head is not allowed"},
      {R"("bamba", "mamba_expand": 2.0)",
       R"(mamba_expand 2.0 is not allowed; allowed: an integer from 1 to 16777216, as mamba_d_head is "auto")"},
      {R"("granitemoehybrid", "layer_types": ["mamba"])",
       R"(layer_types ["mamba"] is not allowed; allowed: a kind for each of 32 layers)"},
      {R"("granitemoehybrid", "num_hidden_layers": 1, "layer_types": ["moe"])",
       R"(a layer "moe" is not allowed; allowed: linear_attention, mamba, full_attention, attention)"},
      {R"("granitemoehybrid", "layer_types": null, "mamba_n_heads": 0)", "mamba_n_heads 0 is not allowed"},
      {R"("qwen3_next", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"])",
       R"(layer_types ["full_attention","sliding_attention"] is not allowed; allowed: full_attention or )"
       "linear_attention for each of num_hidden_layers"},
      {R"("qwen3_next", "num_hidden_layers": 2, "layer_types": ["full_attention"])", "layer_types"},
      {R"("qwen3_next", "num_hidden_layers": 2, "mlp_only_layers": [2])",
       "mlp_only_layers [2] is not allowed; allowed: a list of layers from 0 to 1"},
      {R"("qwen3_next", "decoder_sparse_step": 0)",
       "decoder_sparse_step 0 is not allowed; allowed: 1 to 1024"},
      {R"("qwen3_next", "attention_bias": true)", "attention_bias true is not allowed"},
      {R"("qwen3_next", "use_sliding_window": true)", "use_sliding_window true"},
  };
  for (const auto& [keys, says] : kCases) {
    EXPECT_THAT(FromConfig(absl::StrCat(R"({"model_type": )", keys, "}")).errors, HasSubstr(says)) << keys;
  }
  for (const char* const key : {"full_attention_interval", "decoder_sparse_step", "mlp_only_layers"}) {
    for (const char* const value : {"[18446744073709551615]", "18446744073709551615"}) {
      EXPECT_THAT(
          FromConfig(absl::StrCat(R"({"model_type": "qwen3_next", ")", key, "\": ", value, "}")).errors,
          HasSubstr(absl::StrCat(key, " ", value, " is not allowed")));
    }
  }
  EXPECT_THAT(FromConfig(R"({"model_type": "mamba2", "residual_in_fp32": false})").errors,
              Not(HasSubstr("residual")));
}

}  // namespace
}  // namespace tandem::jobspec
