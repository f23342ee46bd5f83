// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1, "hidden_act": "silu",
  "hidden_size": 64, "initializer_range": 0.03, "intermediate_size": 96, "max_position_embeddings": 2048,
  "model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 3, "num_key_value_heads": 2,
  "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000.0,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 320, "mlp_bias": false
})";

class LocalizeTest : public ::testing::Test {
 protected:
  v1::JobSpec Spec(const std::string& config) {
    v1::JobSpec spec = ReadText(kGoodSpec, "").spec;
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_hugging_face(folder_.Write("model/config.json", config));
    return spec;
  }

  // The messages about a config.json.
  std::string Errors(const std::string& config) {
    v1::JobSpec spec = Spec(config);
    return ToText(Localize(spec));
  }

  // The good file with `from` replaced.
  std::string ErrorsWith(const std::string& from, const std::string& to) {
    std::string config = kConfig;
    config.replace(config.find(from), from.size(), to);
    return Errors(config);
  }

  platform::TemporaryFolder folder_;
};

TEST_F(LocalizeTest, IrregularConfigIsNamed) {
  for (const std::string kind : {"a FIFO", "a socket", "a device"}) {
    const platform::TemporaryFolder folder;
    const std::string path = folder.path() + "/config.json";
    platform::PutIrregularFile(kind, path);
    v1::JobSpec spec = ReadText(kGoodSpec, "").spec;
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_hugging_face(path);
    errno = ENOENT;  // of something else, before
    EXPECT_EQ(ToText(Localize(spec)), "model.hugging_face: " + path +
                                          " is not allowed; allowed: path of a config.json; it is " + kind +
                                          ", not a regular file\n");
  }
}

TEST_F(LocalizeTest, AConfigFileBecomesFields) {
  v1::JobSpec spec = Spec(kConfig);
  spec.mutable_model()->set_num_hidden_layers(5);  // a field of the job wins
  EXPECT_EQ(ToText(Localize(spec)), "");
  const v1::Model& model = spec.model();
  EXPECT_FALSE(model.has_hugging_face());
  EXPECT_EQ(model.model_type(), "llama");
  EXPECT_EQ(model.hidden_size(), 64);
  EXPECT_EQ(model.intermediate_size(), 96);
  EXPECT_EQ(model.num_hidden_layers(), 5);
  EXPECT_EQ(model.num_attention_heads(), 8);
  EXPECT_EQ(model.num_key_value_heads(), 2);
  EXPECT_EQ(model.vocab_size(), 320);
  EXPECT_EQ(model.max_position_embeddings(), 2048);
  EXPECT_EQ(model.rms_norm_eps(), 1e-6);
  EXPECT_EQ(model.rope_theta(), 500000);
  EXPECT_EQ(model.initializer_range(), 0.03);
  EXPECT_TRUE(model.tie_word_embeddings());
  EXPECT_EQ(ToText(Validate(spec)), "");
}

// As transformers writes them.
constexpr char kMixtral[] = R"({
  "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "head_dim": null, "hidden_act": "silu",
  "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": 131072,
  "model_type": "mixtral", "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2,
  "num_key_value_heads": 2, "num_local_experts": 6, "output_router_logits": false, "rms_norm_eps": 1e-05,
  "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}, "router_aux_loss_coef": 0.001,
  "router_jitter_noise": 0.0, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 256
})";
constexpr char kQwen3Moe[] = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 2, "head_dim": 16,
  "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 32768,
  "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 24, "norm_topk_prob": true,
  "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 3, "num_hidden_layers": 2,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": null,
  "use_sliding_window": false, "vocab_size": 256
})";

constexpr char kDeepseekV3[] = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "first_k_dense_replace": 1, "head_dim": 4, "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02,
  "intermediate_size": 48, "kv_lora_rank": 16, "max_position_embeddings": 4096, "model_type": "deepseek_v3",
  "moe_intermediate_size": 24, "n_group": 4, "n_routed_experts": 8, "n_shared_experts": 2, "norm_topk_prob": true,
  "num_attention_heads": 4, "num_experts_per_tok": 4, "num_hidden_layers": 2, "num_key_value_heads": 4,
  "num_nextn_predict_layers": 0, "q_lora_rank": null, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
  "rms_norm_eps": 1e-06, "rope_interleave": true, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "routed_scaling_factor": 2.5, "tie_word_embeddings": false, "topk_group": 2, "v_head_dim": 6, "vocab_size": 256
})";

TEST_F(LocalizeTest, DeepseekV3BecomesFields) {
  v1::JobSpec spec = Spec(kDeepseekV3);
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(ToText(Validate(spec)), "");
  const v1::Model model = Resolve(spec).model();
  EXPECT_EQ(model.model_type(), "deepseek_v3");
  EXPECT_EQ(model.head_dim(), 12) << "the file's is of what is rotated";
  EXPECT_FALSE(model.latent_attention().has_q_lora_rank());
  EXPECT_EQ(model.latent_attention().kv_lora_rank(), 16);
  EXPECT_EQ(model.latent_attention().qk_nope_head_dim(), 8);
  EXPECT_EQ(model.latent_attention().qk_rope_head_dim(), 4);
  EXPECT_EQ(model.latent_attention().v_head_dim(), 6);
  EXPECT_EQ(model.moe().num_experts(), 8);
  EXPECT_EQ(model.moe().n_shared_experts(), 2);
  EXPECT_EQ(model.moe().first_k_dense_replace(), 1);
  EXPECT_EQ(model.moe().n_group(), 4);
  EXPECT_EQ(model.moe().topk_group(), 2);
  EXPECT_EQ(model.moe().routed_scaling_factor(), 2.5);
}

TEST_F(LocalizeTest, JobMayOverrideBiases) {
  for (const char* const config : {kConfig, kQwen3Moe}) {
    v1::JobSpec spec =
        Spec(absl::StrReplaceAll(config, {{"\"attention_bias\": false", "\"attention_bias\": true"}}));
    v1::JobSpec other = spec;
    EXPECT_EQ(ToText(Localize(spec)), "");
    EXPECT_EQ(ToText(Validate(spec)), "");
    EXPECT_EQ(Resolve(spec).model().attention_bias(), v1::ATTENTION_BIAS_ALL);
    other.mutable_model()->set_attention_bias(v1::ATTENTION_BIAS_NONE);
    EXPECT_EQ(ToText(Localize(other)), "");
    EXPECT_EQ(Resolve(other).model().attention_bias(), v1::ATTENTION_BIAS_NONE);
  }
}

TEST_F(LocalizeTest, MixturesOfExpertsBecomeFields) {
  v1::JobSpec spec = Spec(kMixtral);
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.model().model_type(), "mixtral");
  EXPECT_EQ(spec.model().rope_theta(), 1e6);
  EXPECT_EQ(ToText(Validate(spec)), "");
  const v1::MixtureOfExperts mixtral = Resolve(spec).model().moe();
  EXPECT_EQ(mixtral.num_experts(), 6);
  EXPECT_EQ(mixtral.num_experts_per_tok(), 2);
  EXPECT_EQ(mixtral.moe_intermediate_size(), 48);
  EXPECT_TRUE(mixtral.norm_topk_prob());
  EXPECT_EQ(mixtral.decoder_sparse_step(), 1);
  EXPECT_EQ(mixtral.router_aux_loss_coef(), 0) << "a job's, not a model's";

  spec = Spec(kQwen3Moe);
  spec.mutable_model()->mutable_moe()->set_num_experts_per_tok(1);  // a field of the job wins
  spec.mutable_model()->mutable_moe()->set_norm_topk_prob(false);
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.model().model_type(), "qwen3_moe");
  EXPECT_EQ(ToText(Validate(spec)), "");
  const v1::MixtureOfExperts qwen = Resolve(spec).model().moe();
  EXPECT_EQ(qwen.num_experts(), 8);
  EXPECT_EQ(qwen.num_experts_per_tok(), 1);
  EXPECT_EQ(qwen.moe_intermediate_size(), 24);
  EXPECT_FALSE(qwen.norm_topk_prob());
  EXPECT_EQ(qwen.decoder_sparse_step(), 2);
}

TEST_F(LocalizeTest, UncomputedMixtureKeysAreRefusedByName) {
  const auto errors_with = [&](std::string config, const std::string& from, const std::string& to) {
    config.replace(config.find(from), from.size(), to);
    return Errors(config);
  };
  EXPECT_THAT(errors_with(kMixtral, "\"router_jitter_noise\": 0.0", "\"router_jitter_noise\": 0.1"),
              HasSubstr("router_jitter_noise 0.1 is not allowed; allowed: 0"));
  EXPECT_THAT(errors_with(kMixtral, "\"output_router_logits\": false", "\"output_router_logits\": true"),
              HasSubstr("output_router_logits true is not allowed; allowed: false"));
  EXPECT_THAT(errors_with(kQwen3Moe, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0]"),
              HasSubstr("mlp_only_layers [0] is not allowed; allowed: []"));
  EXPECT_THAT(errors_with(kQwen3Moe, "\"num_experts\": 8", "\"num_experts\": 3000000000"),
              HasSubstr("num_experts 3000000000 is not allowed; allowed: an integer"));
  EXPECT_THAT(errors_with(kMixtral, "\"head_dim\": null", "\"num_nextn_predict_layers\": 1"),
              HasSubstr("num_nextn_predict_layers 1 is not allowed; allowed: 0"));
  EXPECT_THAT(errors_with(kDeepseekV3, "\"num_nextn_predict_layers\": 0", "\"num_nextn_predict_layers\": -1"),
              HasSubstr("num_nextn_predict_layers -1 is not allowed; allowed: an integer >= 0"));
  EXPECT_THAT(errors_with(kDeepseekV3, "\"num_nextn_predict_layers\": 0",
                          "\"quantization_config\": {\"quant_method\": \"fp8\"}"),
              HasSubstr("the weights are quantised: cast the model to bf16 first"));
  EXPECT_THAT(errors_with(kDeepseekV3, "\"rope_interleave\": true", "\"rope_interleave\": false"),
              HasSubstr("rope_interleave false is not allowed; allowed: true"));
  EXPECT_THAT(errors_with(kDeepseekV3, "\"rope_interleave\": true", "\"rope_interleave\": null"),
              HasSubstr("rope_interleave null is not allowed; allowed: true"));
  EXPECT_THAT(errors_with(kQwen3Moe, "\"num_experts\": 8", "\"num_experts\": 8, \"num_local_experts\": 6"),
              HasSubstr("num_local_experts 6 is not allowed; allowed: 8, as in num_experts"));
  for (const auto& [key, value] : {std::pair("num_experts", "8"), std::pair("num_experts_per_tok", "3"),
                                   std::pair("decoder_sparse_step", "2")}) {
    EXPECT_THAT(
        errors_with(kQwen3Moe, absl::StrCat("\"", key, "\": ", value), absl::StrCat("\"", key, "\": null")),
        HasSubstr(absl::StrCat(key, " null is not allowed; allowed: an integer")));
  }
  EXPECT_THAT(errors_with(kQwen3Moe, "\"num_experts\": 8", "\"num_local_experts\": null"),
              HasSubstr("num_experts null is not allowed"));
  EXPECT_THAT(errors_with(kMixtral, "\"sliding_window\": null", "\"sliding_window\": 0"),
              HasSubstr("sliding_window 0 is not allowed"));
  EXPECT_THAT(errors_with(kMixtral, "\"sliding_window\": null", "\"use_sliding_window\": true"),
              HasSubstr("use_sliding_window true is not allowed"));
  for (const char* const types : {"[\"full_attention\", \"sliding_attention\"]", "[\"full_attention\"]"}) {
    EXPECT_THAT(errors_with(kQwen3Moe, "\"mlp_only_layers\": []", absl::StrCat("\"layer_types\": ", types)),
                HasSubstr("layer_types [\"full_attention\""));
  }
}

TEST_F(LocalizeTest, WhatOtherKeysSayTooIsTaken) {
  const auto errors_with = [&](std::string config, const std::string& from, const std::string& to) {
    config.replace(config.find(from), from.size(), to);
    return Errors(config);
  };
  EXPECT_EQ(errors_with(kQwen3Moe, "\"sliding_window\": null", "\"sliding_window\": 4096"), "")
      << "use_sliding_window is false";
  EXPECT_EQ(errors_with(kQwen3Moe, "\"mlp_only_layers\": []",
                        "\"layer_types\": [\"full_attention\", \"full_attention\"]"),
            "");
  for (const char* const experts :
       {"\"num_local_experts\": 8, \"num_experts\": 8", "\"num_local_experts\": 8"}) {
    EXPECT_EQ(errors_with(kQwen3Moe, "\"num_experts\": 8", experts), "");
  }
  EXPECT_EQ(errors_with(kDeepseekV3, "\"num_nextn_predict_layers\": 0", "\"num_nextn_predict_layers\": 1"),
            "");
}

TEST_F(LocalizeTest, AFolderWithAConfigFileWillDo) {
  v1::JobSpec spec = Spec(kConfig);
  spec.mutable_model()->set_hugging_face(folder_.path() + "/model");
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.model().hidden_size(), 64);
}

TEST_F(LocalizeTest, MissingKeysAreHuggingFacesDefaults) {
  v1::JobSpec spec = Spec(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8,
          "num_hidden_layers": 3, "vocab_size": 320, "rope_parameters": {"rope_type": "default", "rope_theta": 7.5}})");
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.model().rms_norm_eps(), 1e-6);
  EXPECT_EQ(spec.model().rope_theta(), 7.5);
  EXPECT_FALSE(spec.model().tie_word_embeddings());
  EXPECT_EQ(spec.model().max_position_embeddings(), 2048);
}

// All of them: tests/e2e/test_families.py.
TEST_F(LocalizeTest, MissingKeysAreTheFamilys) {
  const auto without = [&](std::string config, const std::string& field) {
    v1::JobSpec spec = Spec(config.replace(config.find(field), field.size(), ""));
    EXPECT_EQ(ToText(Localize(spec)), "");
    return spec.model();
  };
  EXPECT_EQ(without(kMixtral, "\"rms_norm_eps\": 1e-05,").rms_norm_eps(), 1e-5);
  EXPECT_EQ(without(kMixtral, "\"num_key_value_heads\": 2,").num_key_value_heads(), 8);
  EXPECT_EQ(without(kMixtral, "\"num_local_experts\": 6, ").moe().num_experts(), 8);
  EXPECT_EQ(without(kMixtral, "\"rope_theta\": 1000000.0, ").rope_theta(), 1e6);
  EXPECT_EQ(without(kQwen3Moe, "\"rope_theta\": 10000.0,").rope_theta(), 1e4);
  EXPECT_FALSE(without(kQwen3Moe, ", \"norm_topk_prob\": true").moe().norm_topk_prob());
  EXPECT_TRUE(without(kDeepseekV3, ", \"norm_topk_prob\": true").moe().norm_topk_prob());
  EXPECT_EQ(without(kDeepseekV3, "\"kv_lora_rank\": 16, ").latent_attention().kv_lora_rank(), 512);
  EXPECT_EQ(without(kDeepseekV3, "\"q_lora_rank\": null, ").latent_attention().q_lora_rank(), 1536)
      << "null is none";
}

TEST_F(LocalizeTest, RotaryFieldsAreReadInRopeParametersToo) {
  const std::string rope = R"("bos_token_id": 1, "rope_parameters": )";
  const std::string both = R"(, "rope_parameters": {"rope_theta": 7.5})";
  std::string config = kConfig;
  const std::string theta = "\"rope_theta\": 500000.0";
  v1::JobSpec spec = Spec(config.replace(config.find(theta), theta.size(), "\"rope_theta\": null" + both));
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.model().rope_theta(), 7.5);
  EXPECT_THAT(ErrorsWith(theta, theta + both),
              HasSubstr("rope_theta 500000.0 is not allowed; allowed: 7.5, as in rope_parameters"));
  EXPECT_THAT(ErrorsWith("\"bos_token_id\": 1", rope + R"({"partial_rotary_factor": 0.5})"),
              HasSubstr("partial_rotary_factor 0.5 is not allowed; allowed: 1"));
  EXPECT_THAT(ErrorsWith("\"rope_theta\": 500000.0", R"("rope_parameters": {"rope_theta": "x"})"),
              HasSubstr("rope_theta \"x\" is not allowed; allowed: a number"));
}

TEST_F(LocalizeTest, ScaledRotaryEmbeddingsAreReadInBothSpellings) {
  const auto scaling = [&](const std::string& text) {
    std::string config = kConfig;
    const std::string none = "\"rope_scaling\": null";
    v1::JobSpec spec = Spec(config.replace(config.find(none), none.size(), text));
    EXPECT_EQ(ToText(Localize(spec)), "") << text;
    EXPECT_EQ(spec.model().rope_theta(), 500000);
    return spec.model().rope_scaling();
  };
  const v1::RopeScaling old = scaling(
      R"("rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192, "rope_type": "llama3"})");
  EXPECT_EQ(old.type(), v1::ROPE_TYPE_LLAMA3);
  EXPECT_EQ(old.factor(), 8);
  EXPECT_EQ(old.original_max_position_embeddings(), 8192);
  const v1::RopeScaling now = scaling(
      R"("rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"})");
  EXPECT_EQ(now.SerializeAsString(), old.SerializeAsString());
  const v1::RopeScaling yarn = scaling(
      R"("original_max_position_embeddings": 32, "rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": null,
          "original_max_position_embeddings": 64, "truncate": false})");
  EXPECT_EQ(yarn.original_max_position_embeddings(), 32) << "the one outside wins";
  EXPECT_FALSE(yarn.has_mscale());
  EXPECT_FALSE(yarn.truncate());
  EXPECT_EQ(scaling(R"("rope_scaling": {"type": "linear", "factor": 2})").type(), v1::ROPE_TYPE_LINEAR);
  EXPECT_FALSE(scaling(R"("rope_scaling": {"rope_type": "default"})").has_type());
  for (const char* const bad :
       {R"({"type": "dynamic", "factor": 2})", R"({"full_attention": {"type": "linear"}})",
        R"({"type": "linear", "factor": "2"})", R"({"type": "linear", "factor": 2, "x": 1})"}) {
    EXPECT_THAT(ErrorsWith("\"rope_scaling\": null", std::string("\"rope_scaling\": ") + bad),
                HasSubstr("of the type linear, llama3, yarn or default"));
  }
}

TEST_F(LocalizeTest, WindowsBecomeFields) {
  const auto read = [&](const std::string& type, const std::string& keys) {
    const std::string config =
        absl::StrCat("{\"model_type\": \"", type, "\", \"num_hidden_layers\": 8", keys, "}");
    v1::JobSpec spec = Spec(config);
    EXPECT_EQ(ToText(Localize(spec)), "") << config;
    EXPECT_EQ(ToText(Validate(spec)), "") << config;
    const v1::Model model = Resolve(spec).model();
    return model.has_sliding_window() ? absl::StrCat(model.sliding_window(), " in ", model.window_layers())
                                      : std::string("none");
  };
  EXPECT_EQ(read("mistral", ""), "4096 in all");
  EXPECT_EQ(read("mistral", R"(, "sliding_window": null)"), "none");
  EXPECT_EQ(read("mistral", R"(, "sliding_window": 7)"), "7 in all");
  for (const char* const type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(read(type, ""), "none");
    EXPECT_EQ(read(type, R"(, "sliding_window": 4096, "use_sliding_window": false)"), "none");
    EXPECT_EQ(read(type, R"(, "use_sliding_window": true)"), "none") << "max_window_layers is 28";
    EXPECT_EQ(read(type, R"(, "use_sliding_window": true, "max_window_layers": 5)"), "4096 in 5-7");
    EXPECT_EQ(read(type, R"(, "use_sliding_window": true, "max_window_layers": 0)"), "4096 in all");
    EXPECT_EQ(read(type, R"(, "use_sliding_window": true, "sliding_window": null)"), "none");
    // The job's own window stays, with the file's layers.
    v1::JobSpec spec = Spec(absl::StrCat(R"({"model_type": ")", type,
                                         R"(", "num_hidden_layers": 8, "use_sliding_window": true,
                                             "max_window_layers": 5})"));
    spec.mutable_model()->set_sliding_window(8);
    EXPECT_EQ(ToText(Localize(spec)), "");
    EXPECT_EQ(spec.model().sliding_window(), 8);
    EXPECT_EQ(spec.model().window_layers(), "5-7");
    const std::string full = R"("full_attention")";
    const std::string window = R"("sliding_attention")";
    EXPECT_EQ(
        read(type, absl::StrCat(
                       R"(, "use_sliding_window": true, "layer_types": [)",
                       absl::StrJoin({window, full, full, window, window, window, full, window}, ", "), "]")),
        "4096 in 0,3-5,7");
  }
}

TEST_F(LocalizeTest, OtherArchitecturesAreRefused) {
  EXPECT_EQ(
      ErrorsWith("LlamaForCausalLM", "GemmaForCausalLM"),
      "model.hugging_face: architecture [\"GemmaForCausalLM\"] is not allowed; allowed: LlamaForCausalLM, "
      "MixtralForCausalLM, Qwen3MoeForCausalLM, DeepseekV3ForCausalLM, DeepseekV2ForCausalLM, "
      "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Olmo2ForCausalLM, Mamba2ForCausalLM, "
      "NemotronHForCausalLM, GraniteForCausalLM, GraniteMoeHybridForCausalLM, BambaForCausalLM, "
      "Qwen3NextForCausalLM, TandemHybridForCausalLM; not built yet: other architectures; use one of "
      "these\n");
  EXPECT_THAT(ErrorsWith("LlamaForCausalLM", "MixtralForCausalLM"), HasSubstr("architecture")) << "a llama's";
  EXPECT_THAT(ErrorsWith("\"llama\"", "\"qwen3\""), HasSubstr("architecture"));
  EXPECT_THAT(Errors("{}"), HasSubstr("architecture null is not allowed"));
}

TEST_F(LocalizeTest, UncomputedKeysAreRefusedByName) {
  const std::string end = " is not allowed; allowed: ";
  EXPECT_EQ(ErrorsWith("\"rope_scaling\": null", "\"rope_scaling\": {\"factor\": 8.0}"),
            "model.hugging_face: rope_scaling {\"factor\":8.0} is not allowed; allowed: of the type linear, "
            "llama3, yarn or default; its key factor is not known for this type: use a model without it\n");
  EXPECT_THAT(
      Errors(absl::StrReplaceAll(kDeepseekV3, {{"\"attention_bias\": false", "\"attention_bias\": true"}})),
      HasSubstr("attention_bias true" + end + "false"));
  EXPECT_THAT(ErrorsWith("\"mlp_bias\": false", "\"mlp_bias\": true"),
              HasSubstr("mlp_bias true" + end + "false"));
  EXPECT_THAT(ErrorsWith("\"silu\"", "\"gelu\""), HasSubstr("hidden_act \"gelu\"" + end + "\"silu\""));
  EXPECT_THAT(ErrorsWith("\"bos_token_id\": 1", "\"rope_parameters\": {\"rope_type\": \"llama3\"}"),
              HasSubstr("rope_parameters {\"rope_type\":\"llama3\"}" + end +
                        "of the type linear, llama3, yarn or default; factor is missing"));
}

// transformers scales by the older "type" too; taken as unscaled, the model is another one.
TEST_F(LocalizeTest, RotaryEmbeddingsOfUnclearTypeAreRefused) {
  const std::string theta = "\"rope_theta\": 500000.0";
  const auto errors = [&](const std::string& rope) {
    return ErrorsWith(theta, "\"rope_parameters\": {\"rope_theta\": 500000.0, " + rope + "}");
  };
  EXPECT_EQ(errors("\"type\": \"default\""), "");
  EXPECT_EQ(errors("\"rope_type\": null, \"type\": \"linear\", \"factor\": 4"), "");
  EXPECT_EQ(errors("\"rope_type\": \"default\", \"type\": null, \"factor\": null"), "");
  for (const char* const rope :
       {R"("type": "dynamic", "factor": 4.0)", R"("type": "linear")",
        R"("rope_type": "default", "factor": 4.0)", R"("rope_type": "default", "type": "yarn")",
        R"("rope_type": 1)", R"("full_attention": {"rope_type": "linear", "factor": 4.0})"}) {
    EXPECT_THAT(errors(rope), HasSubstr("of the type linear, llama3, yarn or default")) << rope;
  }
}

TEST_F(LocalizeTest, FieldsThatAreNotKnownAreRefused) {
  EXPECT_EQ(ErrorsWith("\"bos_token_id\": 1", "\"bos_token_id\": 1, \"_attn\": 1, \"new_gate\": null"), "");
  EXPECT_EQ(
      ErrorsWith("\"bos_token_id\": 1", "\"bos_token_id\": 1, \"new_gate\": true, \"b\": {\"c\": 1}"),
      "model.hugging_face: a file with b, new_gate is not allowed; allowed: a file of known fields; "
      "these may change the numbers: remove them from a copy of the file if they do not, or use another "
      "model\n");
  EXPECT_THAT(ErrorsWith("\"bos_token_id\": 1", "\"a\": 1, \"b\": 1, \"c\": 1, \"d\": 1, \"e\": 1, \"f\": 1"),
              HasSubstr("a file with a, b, c, d, e and 1 more is not allowed"));
}

TEST_F(LocalizeTest, AllProblemsAreReportedAtOnce) {
  ReadResult read =
      ReadText("data: {train: /d}\nmodel: {hugging_face: " +
                   folder_.Write("config.json",
                                 R"({"model_type": "llama", "hidden_size": "big", "vocab_size": 1.5,
                                                   "mlp_bias": true, "num_hidden_layers": 99999999999999999999})") +
                   "}\ntraining: {steps: 1, sequence_length: 1, micro_batch_size: 1, global_batch_size: 0}",
               "f");
  std::string text;
  for (const v1::Violation& violation : CheckAll(read, [](const v1::JobSpec&) { return false; }).violations) {
    text += std::to_string(violation.line()) + " " + violation.value() + "\n";
  }
  EXPECT_EQ(text,
            "2 mlp_bias true\n2 hidden_size \"big\"\n2 num_hidden_layers 1e+20\n2 vocab_size 1.5\n3 0\n");
}

// Nor is a number true or false.
TEST_F(LocalizeTest, NumericSwitchIsRefusedOnce) {
  const auto expect = [&](const std::string& config, const std::string& key, const std::string& allowed) {
    for (const char* const number : {"1", "0"}) {
      const std::string value = absl::StrCat(key, " ", number);
      const std::string errors =
          Errors(absl::StrCat(config.substr(0, config.rfind('}')), ", \"", key, "\": ", number, "}"));
      EXPECT_THAT(errors, HasSubstr(absl::StrCat(value, " is not allowed; allowed: ", allowed, ";")));
      EXPECT_EQ(errors.find(value), errors.rfind(value)) << errors;
    }
  };
  const std::string llama = absl::StrReplaceAll(kConfig, {{"\"attention_bias\": false, ", ""}});
  expect(llama, "attention_bias", "true, false");
  expect(llama, "use_sliding_window", "false");
  expect(llama, "mlp_bias", "false");
  expect(R"({"model_type": "qwen2"})", "use_sliding_window", "true, false");
  expect(R"({"model_type": "qwen2"})", "tie_word_embeddings", "true, false");
  expect(R"({"model_type": "mistral"})", "attention_bias", "false");
  expect(R"({"model_type": "qwen3_moe"})", "norm_topk_prob", "true, false");
  expect(R"({"model_type": "deepseek_v2"})", "norm_topk_prob", "false");
}

TEST_F(LocalizeTest, FilesThatAreNoConfigAreRefused) {
  EXPECT_THAT(Errors("{"), HasSubstr("allowed: a JSON object"));
  EXPECT_THAT(Errors("[]"), HasSubstr("allowed: a JSON object"));
  EXPECT_THAT(Errors(std::string(2 << 20, ' ')), HasSubstr("at most 1048576 bytes"));
  EXPECT_THAT(Errors(std::string(1 << 19, '[')), HasSubstr("allowed: a JSON object"));
  v1::JobSpec spec = Spec(kConfig);
  spec.mutable_model()->set_hugging_face("/no/such");
  EXPECT_EQ(ToText(Localize(spec)),
            "model.hugging_face: /no/such is not allowed; allowed: path of a config.json; No such file or "
            "directory\n");
  EXPECT_TRUE(spec.model().has_hugging_face());
}

TEST_F(LocalizeTest, PathsBecomeAbsolute) {
  const std::string here = std::filesystem::current_path().string();
  v1::JobSpec spec = ReadText(kGoodSpec, "").spec;
  spec.mutable_data()->set_train("./text/*.txt");
  spec.mutable_data()->set_validation(".");
  spec.mutable_checkpoint()->set_directory("runs/a");
  spec.mutable_checkpoint()->set_resume("newest");
  spec.mutable_checkpoint()->mutable_export_()->set_to("out");
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.checkpoint().export_().to(), here + "/out");
  spec.mutable_checkpoint()->clear_export_();
  EXPECT_EQ(spec.data().train(), here + "/text/*.txt");
  EXPECT_EQ(spec.data().validation(), here);
  EXPECT_EQ(spec.checkpoint().directory(), here + "/runs/a");
  EXPECT_EQ(spec.checkpoint().resume(), "newest");
  spec.mutable_checkpoint()->set_resume("none");
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.checkpoint().resume(), "none");
  EXPECT_EQ(ToText(Validate(spec)), "");
  spec.mutable_checkpoint()->set_resume("runs/a/step-5");
  EXPECT_EQ(ToText(Localize(spec)), "");
  EXPECT_EQ(spec.checkpoint().resume(), here + "/runs/a/step-5");
  EXPECT_EQ(ToText(Validate(spec)), "");
}

TEST_F(LocalizeTest, OnlyAShellKnowsTheTilde) {
  v1::JobSpec spec = ReadText(kGoodSpec, "").spec;
  spec.mutable_data()->set_train("~/text");
  EXPECT_EQ(ToText(Localize(spec)),
            "data.train: ~/text is not allowed; allowed: a path without ~; only a shell knows ~: write the "
            "folder out\n");
}

}  // namespace
}  // namespace tandem::jobspec
