// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// `config` with the keys of `patch` instead of its own, and without the key `without`.
std::string With(const std::string& config, const std::string& patch, const std::string& without = "") {
  nlohmann::json json = nlohmann::json::parse(config);
  json.erase(without);
  json.update(nlohmann::json::parse(patch));
  return json.dump();
}

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

  // The resolved model of a good one, or of a job with it.
  static v1::Model ModelOf(v1::JobSpec spec) {
    EXPECT_EQ(ToText(Localize(spec)), "");
    EXPECT_FALSE(spec.model().has_hugging_face());
    EXPECT_EQ(ToText(Validate(spec)), "");
    return Resolve(spec).model();
  }
  v1::Model ModelOf(const std::string& config) { return ModelOf(Spec(config)); }

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
  ExpectFields(ModelOf(spec), R"(
      model_type: "llama" hidden_size: 64 intermediate_size: 96 num_hidden_layers: 5 num_attention_heads: 8
      num_key_value_heads: 2 vocab_size: 320 max_position_embeddings: 2048 rms_norm_eps: 1e-6
      rope_theta: 500000 initializer_range: 0.03 tie_word_embeddings: true)");
}

TEST_F(LocalizeTest, DeepseekV3BecomesFields) {
  const v1::Model model = ModelOf(kDeepseekV3);
  EXPECT_EQ(model.head_dim(), 12) << "the file's is of what is rotated";
  EXPECT_FALSE(model.latent_attention().has_q_lora_rank());
  ExpectFields(model, R"(
      model_type: "deepseek_v3"
      latent_attention { kv_lora_rank: 16 qk_nope_head_dim: 8 qk_rope_head_dim: 4 v_head_dim: 6 }
      moe { num_experts: 8 n_shared_experts: 2 first_k_dense_replace: 1 n_group: 4 topk_group: 2
            routed_scaling_factor: 2.5 })");
}

TEST_F(LocalizeTest, JobMayOverrideBiases) {
  for (const char* const config : {kConfig, kQwen3Moe}) {
    v1::JobSpec spec = Spec(With(config, R"({"attention_bias": true})"));
    EXPECT_EQ(ModelOf(spec).attention_bias(), v1::ATTENTION_BIAS_ALL);
    spec.mutable_model()->set_attention_bias(v1::ATTENTION_BIAS_NONE);
    EXPECT_EQ(ModelOf(spec).attention_bias(), v1::ATTENTION_BIAS_NONE);
  }
}

TEST_F(LocalizeTest, MixturesOfExpertsBecomeFields) {
  ExpectFields(ModelOf(kMixtral), R"(
      model_type: "mixtral" rope_theta: 1e6
      moe { num_experts: 6 num_experts_per_tok: 2 moe_intermediate_size: 48 norm_topk_prob: true
            decoder_sparse_step: 1 router_aux_loss_coef: 0 })");
  v1::JobSpec spec = Spec(kQwen3Moe);
  spec.mutable_model()->mutable_moe()->set_num_experts_per_tok(1);  // a field of the job wins
  spec.mutable_model()->mutable_moe()->set_norm_topk_prob(false);
  ExpectFields(ModelOf(spec), R"(
      model_type: "qwen3_moe"
      moe { num_experts: 8 num_experts_per_tok: 1 moe_intermediate_size: 24 norm_topk_prob: false
            decoder_sparse_step: 2 })");
}

TEST_F(LocalizeTest, UncomputedKeysAreRefusedByName) {
  const struct {
    const char* config;
    const char* patch;
    const char* says;
  } kCases[] = {
      {kConfig, R"({"mlp_bias": true})", "mlp_bias true is not allowed; allowed: false"},
      {kConfig, R"({"hidden_act": "gelu"})", R"(hidden_act "gelu" is not allowed; allowed: "silu")"},
      {kConfig, R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "partial_rotary_factor 0.5 is not allowed; allowed: 1"},
      {kConfig, R"({"rope_theta": null, "rope_parameters": {"rope_theta": "x"}})",
       R"(rope_theta "x" is not allowed; allowed: a number)"},
      {kConfig, R"({"rope_parameters": {"rope_theta": 7.5}})",
       "rope_theta 500000.0 is not allowed; allowed: 7.5, as in rope_parameters"},
      {kConfig, R"({"rope_scaling": {"factor": 8.0}})",
       R"(rope_scaling {"factor":8.0} is not allowed; allowed: of the type linear, llama3, yarn or default; )"
       "its key factor is not known for this type: use a model without it"},
      {kConfig, R"({"rope_parameters": {"rope_type": "llama3"}})",
       R"(rope_parameters {"rope_type":"llama3"} is not allowed; allowed: of the type linear, llama3, yarn )"
       "or default; factor is missing"},
      {kMixtral, R"({"router_jitter_noise": 0.1})", "router_jitter_noise 0.1 is not allowed; allowed: 0"},
      {kMixtral, R"({"output_router_logits": true})",
       "output_router_logits true is not allowed; allowed: false"},
      {kMixtral, R"({"num_nextn_predict_layers": 1})",
       "num_nextn_predict_layers 1 is not allowed; allowed: 0"},
      {kMixtral, R"({"sliding_window": 0})", "sliding_window 0 is not allowed"},
      {kMixtral, R"({"use_sliding_window": true})", "use_sliding_window true is not allowed"},
      {kQwen3Moe, R"({"mlp_only_layers": [0]})", "mlp_only_layers [0] is not allowed; allowed: []"},
      {kQwen3Moe, R"({"num_experts": 3000000000})",
       "num_experts 3000000000 is not allowed; allowed: an integer"},
      {kQwen3Moe, R"({"num_experts": null})", "num_experts null is not allowed; allowed: an integer"},
      {kQwen3Moe, R"({"num_experts_per_tok": null})",
       "num_experts_per_tok null is not allowed; allowed: an integer"},
      {kQwen3Moe, R"({"decoder_sparse_step": null})",
       "decoder_sparse_step null is not allowed; allowed: an integer"},
      {kQwen3Moe, R"({"num_local_experts": 6})",
       "num_local_experts 6 is not allowed; allowed: 8, as in num_experts"},
      {kQwen3Moe, R"({"layer_types": ["full_attention", "sliding_attention"]})",
       R"(layer_types ["full_attention")"},
      {kQwen3Moe, R"({"layer_types": ["full_attention"]})", R"(layer_types ["full_attention")"},
      {kDeepseekV3, R"({"attention_bias": true})", "attention_bias true is not allowed; allowed: false"},
      {kDeepseekV3, R"({"num_nextn_predict_layers": -1})",
       "num_nextn_predict_layers -1 is not allowed; allowed: an integer >= 0"},
      {kDeepseekV3, R"({"quantization_config": {"quant_method": "fp8"}})",
       "the weights are quantised: cast the model to bf16 first"},
      {kDeepseekV3, R"({"rope_interleave": false})", "rope_interleave false is not allowed; allowed: true"},
      {kDeepseekV3, R"({"rope_interleave": null})", "rope_interleave null is not allowed; allowed: true"},
  };
  for (const auto& [config, patch, says] : kCases) {
    EXPECT_THAT(Errors(With(config, patch)), HasSubstr(says)) << patch;
  }
  EXPECT_THAT(Errors(With(kQwen3Moe, R"({"num_local_experts": null})", "num_experts")),
              HasSubstr("num_experts null is not allowed"));
}

TEST_F(LocalizeTest, WhatOtherKeysSayTooIsTaken) {
  for (const char* const patch :
       {R"({"sliding_window": 4096})", R"({"layer_types": ["full_attention", "full_attention"]})",
        R"({"num_local_experts": 8})"}) {
    EXPECT_EQ(Errors(With(kQwen3Moe, patch)), "") << patch;
  }
  EXPECT_EQ(Errors(With(kQwen3Moe, R"({"num_local_experts": 8})", "num_experts")), "");
  EXPECT_EQ(Errors(With(kDeepseekV3, R"({"num_nextn_predict_layers": 1})")), "");
}

TEST_F(LocalizeTest, AFolderWithAConfigFileWillDo) {
  v1::JobSpec spec = Spec(kConfig);
  spec.mutable_model()->set_hugging_face(folder_.path() + "/model");
  EXPECT_EQ(ModelOf(spec).hidden_size(), 64);
}

// All of them: tests/e2e/test_config_json_keys.py.
TEST_F(LocalizeTest, MissingKeysAreTheFamilys) {
  ExpectFields(ModelOf(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8,
                           "rope_parameters": {"rope_type": "default", "rope_theta": 7.5}})"),
               "rms_norm_eps: 1e-6 rope_theta: 7.5 tie_word_embeddings: false max_position_embeddings: 2048");
  const auto without = [&](const std::string& config, const std::string& key) {
    v1::JobSpec spec = Spec(With(config, "{}", key));
    EXPECT_EQ(ToText(Localize(spec)), "");
    return spec.model();
  };
  EXPECT_EQ(without(kMixtral, "rms_norm_eps").rms_norm_eps(), 1e-5);
  EXPECT_EQ(without(kMixtral, "num_key_value_heads").num_key_value_heads(), 8);
  EXPECT_EQ(without(kMixtral, "num_local_experts").moe().num_experts(), 8);
  EXPECT_EQ(without(kMixtral, "rope_parameters").rope_theta(), 1e6);
  EXPECT_EQ(without(kQwen3Moe, "rope_theta").rope_theta(), 1e4);
  EXPECT_FALSE(without(kQwen3Moe, "norm_topk_prob").moe().norm_topk_prob());
  EXPECT_TRUE(without(kDeepseekV3, "norm_topk_prob").moe().norm_topk_prob());
  EXPECT_EQ(without(kDeepseekV3, "kv_lora_rank").latent_attention().kv_lora_rank(), 512);
  EXPECT_EQ(without(kDeepseekV3, "q_lora_rank").latent_attention().q_lora_rank(), 1536) << "null is none";
}

TEST_F(LocalizeTest, ScaledRotaryEmbeddingsAreReadInBothSpellings) {
  const auto scaling = [&](const std::string& patch) {
    const v1::Model model = ModelOf(With(kConfig, patch));
    EXPECT_EQ(model.rope_theta(), 500000);
    return model.rope_scaling();
  };
  for (const char* const patch :
       {R"({"rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"}})",
        R"({"rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "rope_theta": 500000.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}})"}) {
    ExpectFields(scaling(patch),
                 "type: ROPE_TYPE_LLAMA3 factor: 8 original_max_position_embeddings: 8192 low_freq_factor: 1 "
                 "high_freq_factor: 4");
  }
  const v1::RopeScaling yarn = scaling(
      R"({"original_max_position_embeddings": 32, "rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": null,
          "original_max_position_embeddings": 64, "truncate": false}})");
  EXPECT_EQ(yarn.original_max_position_embeddings(), 32) << "the one outside wins";
  EXPECT_FALSE(yarn.has_mscale());
  EXPECT_FALSE(yarn.truncate());
  EXPECT_EQ(scaling(R"({"rope_scaling": {"type": "linear", "factor": 2}})").type(), v1::ROPE_TYPE_LINEAR);
  EXPECT_FALSE(scaling(R"({"rope_scaling": {"rope_type": "default"}})").has_type());
  EXPECT_EQ(
      ModelOf(With(kConfig, R"({"rope_theta": null, "rope_parameters": {"rope_theta": 7.5}})")).rope_theta(),
      7.5);
}

// transformers scales by the older "type" too; taken as unscaled, the model is another one.
TEST_F(LocalizeTest, RotaryEmbeddingsOfUnclearTypeAreRefused) {
  const auto errors = [&](const char* key, const std::string& rope) {
    return Errors(With(kConfig, absl::StrCat("{\"", key, "\": {", rope, "}}")));
  };
  for (const char* const rope :
       {R"("type": "default")", R"("rope_type": null, "type": "linear", "factor": 4)",
        R"("rope_type": "default", "type": null, "factor": null)"}) {
    EXPECT_EQ(errors("rope_parameters", rope), "") << rope;
  }
  for (const char* const rope :
       {R"("type": "dynamic", "factor": 4.0)", R"("type": "linear")", R"("type": "linear", "factor": "2")",
        R"("type": "linear", "factor": 2, "x": 1)", R"("rope_type": "default", "factor": 4.0)",
        R"("rope_type": "default", "type": "yarn")", R"("rope_type": 1)",
        R"("full_attention": {"rope_type": "linear", "factor": 4.0})"}) {
    for (const char* const key : {"rope_parameters", "rope_scaling"}) {
      EXPECT_THAT(errors(key, rope), HasSubstr("of the type linear, llama3, yarn or default")) << rope;
    }
  }
}

TEST_F(LocalizeTest, WindowsBecomeFields) {
  const auto read = [&](const std::string& type, const std::string& keys) {
    const std::string config =
        absl::StrCat("{\"model_type\": \"", type, "\", \"num_hidden_layers\": 8", keys, "}");
    const v1::Model model = ModelOf(config);
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
    ExpectFields(ModelOf(spec), R"(sliding_window: 8 window_layers: "5-7")");
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
      Errors(With(kConfig, R"({"architectures": ["GemmaForCausalLM"]})")),
      "model.hugging_face: architecture [\"GemmaForCausalLM\"] is not allowed; allowed: LlamaForCausalLM, "
      "MixtralForCausalLM, Qwen3MoeForCausalLM, DeepseekV3ForCausalLM, DeepseekV2ForCausalLM, "
      "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Olmo2ForCausalLM, Mamba2ForCausalLM, "
      "NemotronHForCausalLM, GraniteForCausalLM, GraniteMoeHybridForCausalLM, BambaForCausalLM, "
      "Qwen3NextForCausalLM, TandemHybridForCausalLM; not built yet: other architectures; use one of "
      "these\n");
  EXPECT_THAT(Errors(With(kConfig, R"({"architectures": ["MixtralForCausalLM"]})")),
              HasSubstr("architecture"))
      << "a llama's";
  EXPECT_THAT(Errors(With(kConfig, R"({"model_type": "qwen3"})")), HasSubstr("architecture"));
  EXPECT_THAT(Errors("{}"), HasSubstr("architecture null is not allowed"));
}

TEST_F(LocalizeTest, FieldsThatAreNotKnownAreRefused) {
  EXPECT_EQ(Errors(With(kConfig, R"({"_attn": 1, "new_gate": null})")), "");
  EXPECT_EQ(
      Errors(With(kConfig, R"({"new_gate": true, "b": {"c": 1}})")),
      "model.hugging_face: a file with b, new_gate is not allowed; allowed: a file of known fields; "
      "these may change the numbers: remove them from a copy of the file if they do not, or use another "
      "model\n");
  EXPECT_THAT(Errors(With(kConfig, R"({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1})")),
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
      const std::string errors = Errors(With(config, absl::StrCat("{\"", key, "\": ", number, "}")));
      EXPECT_THAT(errors, HasSubstr(absl::StrCat(value, " is not allowed; allowed: ", allowed, ";")));
      EXPECT_EQ(errors.find(value), errors.rfind(value)) << errors;
    }
  };
  expect(kConfig, "attention_bias", "true, false");
  expect(kConfig, "use_sliding_window", "false");
  expect(kConfig, "mlp_bias", "false");
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
