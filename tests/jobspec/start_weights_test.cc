// SPDX-License-Identifier: Apache-2.0
#include "jobspec/start_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "jobspec/decoder_config.h"
#include "jobspec/hugging_face_config.h"
#include "jobspec/hugging_face_export.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_function.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kLlamaConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 4, "vocab_size": 256, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
  "tie_word_embeddings": false, "eos_token_id": [2, 3], "dtype": "bfloat16",
  "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})";

// A folder with a model's config.json and weights of zeros, and a job that starts from it.
class StartWeightsTest : public testing::Test {
 protected:
  StartWeightsTest() {
    folder_.Write("config.json", kLlamaConfig);
    spec_ = ReadText(kGoodSpec, "").spec;
    spec_.clear_model();
    spec_.mutable_model()->set_hugging_face(folder_.path());
    EXPECT_EQ(ToText(ReadHuggingFace(*spec_.mutable_model())), "");
    spec_.mutable_checkpoint()->set_start_from(folder_.path());
    WriteWeights();
  }

  v1::Model Resolved() const { return Resolve(spec_).model(); }

  void WriteWeights() {
    std::vector<checkpoint::TensorToWrite> tensors;
    int64_t elements = 0;
    for (const checkpoint::WantedTensor& tensor : WantedWeightsOf(ModelConfigOf(Resolved())).tensors) {
      tensors.push_back({.name = tensor.name, .dtype = "BF16", .shape = tensor.shape});
      int64_t of_tensor = 1;
      for (const int64_t dim : tensor.shape) {
        of_tensor *= dim;
      }
      elements += of_tensor;
    }
    folder_.Write("model.safetensors", *checkpoint::SafetensorsBeginning(tensors, {}) +
                                           std::string(static_cast<size_t>(2 * elements), '\0'));
  }

  std::string Check() const { return ToText(CheckStartFrom(platform::SystemFiles(), Resolve(spec_))); }

  // The config.json of an export of `model`, beside weights that came with `source`.
  static std::string Exported(const v1::Model& model, const std::string& source, bool is_origin) {
    const auto text = ExportedConfig(source, is_origin, /*dataset=*/"", model, /*bf16=*/true, 64);
    EXPECT_TRUE(text.ok());
    return text.value_or("");
  }

  platform::TemporaryFolder folder_;
  v1::JobSpec spec_;
};

TEST_F(StartWeightsTest, AFolderOfTheJobsModelIsGood) {
  EXPECT_EQ(ToText(Validate(spec_)), "");
  EXPECT_EQ(Check(), "");
}

TEST_F(StartWeightsTest, OtherSizesThanTheFoldersAreRefused) {
  spec_.mutable_model()->set_intermediate_size(16);
  spec_.mutable_model()->set_rope_theta(10000);
  EXPECT_THAT(Check(),
              HasSubstr("model.intermediate_size is 16, and 12 there; model.rope_theta is 10000, and "
                        "5e5 there: use model: {hugging_face: " +
                        folder_.path()));
}

TEST_F(StartWeightsTest, UncomputableConfigNamesItsKey) {
  folder_.Write("config.json", absl::StrCat(R"({"mlp_bias": true, )", std::string(kLlamaConfig).substr(1)));
  EXPECT_THAT(Check(), HasSubstr("checkpoint.start_from: mlp_bias true is not allowed"));
}

TEST_F(StartWeightsTest, OtherTensorsAreNamed) {
  spec_.mutable_model()->set_tie_word_embeddings(true);
  WriteWeights();  // without lm_head.weight
  spec_.mutable_model()->set_tie_word_embeddings(false);
  EXPECT_THAT(Check(), HasSubstr("1 tensor is missing (lm_head.weight): if the head shares"));
}

TEST_F(StartWeightsTest, FoldersThatAreNoneAreRefused) {
  spec_.mutable_checkpoint()->set_start_from("/no/such");
  EXPECT_THAT(Check(), HasSubstr("no such folder"));
  spec_.mutable_checkpoint()->set_start_from(folder_.path() + "/config.json");
  EXPECT_THAT(Check(), HasSubstr("it is not a folder"));
  std::filesystem::create_directories(folder_.path() + "/saved/step-20");
  spec_.mutable_checkpoint()->set_start_from(folder_.path() + "/saved");
  EXPECT_THAT(Check(), HasSubstr("name one of them, as " + folder_.path() + "/saved/step-20"));
}

TEST_F(StartWeightsTest, AStepOfAnotherModelIsRefused) {
  checkpoint::Manifest manifest;
  manifest.info.step = 20;
  manifest.info.model = ModelFunctionText(Resolved());
  folder_.Write("step-20/manifest.json", checkpoint::WriteManifest(manifest).text);
  spec_.mutable_checkpoint()->set_start_from(folder_.path() + "/step-20");
  EXPECT_EQ(Check(), "");
  spec_.mutable_model()->set_rms_norm_eps(0.01);
  EXPECT_THAT(Check(), HasSubstr("model.rms_norm_eps is 0.01, and 1e-6 there"));
}

TEST_F(StartWeightsTest, AnInvalidModelIsNotCompared) {
  spec_.mutable_model()->set_num_hidden_layers(int64_t{1} << 60);
  EXPECT_EQ(Check(), "");
}

TEST_F(StartWeightsTest, ResumingACheckpointExcludesIt) {
  spec_.mutable_checkpoint()->set_directory("/c");
  spec_.mutable_checkpoint()->set_resume("newest");
  EXPECT_EQ(ToText(Validate(spec_)), "");
  spec_.mutable_checkpoint()->set_resume("/c/step-1");
  EXPECT_THAT(ToText(Validate(spec_)), HasSubstr("checkpoint.start_from: "));
}

TEST_F(StartWeightsTest, ARelativePathMeansNothingElsewhere) {
  spec_.mutable_checkpoint()->set_start_from("model");
  EXPECT_THAT(ToText(Validate(spec_)), HasSubstr("checkpoint.start_from: the relative path model"));
  EXPECT_EQ(ToText(Localize(spec_)), "");
  EXPECT_EQ(spec_.checkpoint().start_from(), std::filesystem::current_path().string() + "/model");
}

TEST_F(StartWeightsTest, ExportedConfigReadsBack) {
  for (const std::string source : {"", kLlamaConfig}) {
    const std::string text = Exported(Resolved(), source, /*is_origin=*/true);
    folder_.Write("config.json", text);
    EXPECT_EQ(Check(), "");
    EXPECT_THAT(text,
                AllOf(HasSubstr("\"torch_dtype\": \"bfloat16\""), HasSubstr("\"rope_theta\": 500000.0"),
                      HasSubstr("\"max_position_embeddings\": 128"), Not(HasSubstr("rope_parameters"))));
    EXPECT_EQ(text.find("\"eos_token_id\": null") != std::string::npos, source.empty());
  }
}

TEST_F(StartWeightsTest, ExportedModelsAreReadBack) {
  constexpr char kDeepseek[] =
      "model_type: deepseek_v2, latent_attention: {kv_lora_rank: 8, qk_nope_head_dim: 6, "
      "qk_rope_head_dim: 4, v_head_dim: 8}, moe: {num_experts: 8, num_experts_per_tok: 3, "
      "moe_intermediate_size: 12";
  constexpr char kExperts[] = ", moe: {num_experts: 4, num_experts_per_tok: 2}";
  constexpr char kWindow[] = ", sliding_window: 9, window_layers: ";
  std::vector<std::pair<std::string, std::string>> exported = {
      // a model, and what its config.json has
      {absl::StrCat(kDeepseek, ", n_group: 4, topk_group: 2}"), R"("topk_method": "group_limited_greedy")"},
      {absl::StrCat(kDeepseek, "}"), R"("topk_method": "greedy")"}};
  for (const char* const type : {"llama", "qwen3", "olmo2"}) {
    exported.emplace_back(absl::StrCat("model_type: ", type, ", attention_bias: all"),
                          R"("attention_bias": true)");
    exported.emplace_back(absl::StrCat("model_type: ", type), R"("attention_bias": false)");
  }
  for (const std::string type : {"mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"}) {
    const bool is_sparse = type == "mixtral" || type == "qwen3_moe";
    for (const char* const window : {"all", "2-3", "\"0,3\"", ""}) {
      if (*window == '\0' || window == std::string("all") || type.starts_with("qwen2") || type == "qwen3") {
        exported.emplace_back(
            absl::StrCat("model_type: ", type, is_sparse ? kExperts : "", *window ? kWindow : "", window),
            "");
      }
    }
  }
  for (const auto& [model, shown] : exported) {
    SCOPED_TRACE(model);
    const v1::JobSpec written =
        ReadText(absl::StrCat("model: {hidden_size: 32, intermediate_size: 48, num_hidden_layers: 4, "
                              "num_attention_heads: 4, vocab_size: 320, max_position_embeddings: 64, ",
                              model, "}"),
                 "")
            .spec;
    const v1::Model resolved = Resolve(written).model();
    const std::string text = Exported(resolved, /*source=*/"", /*is_origin=*/false);
    EXPECT_THAT(text, HasSubstr(shown));
    v1::JobSpec read;
    read.mutable_model()->set_hugging_face(folder_.Write("exported/config.json", text));
    EXPECT_EQ(ToText(Localize(read)), "") << text;
    EXPECT_EQ(Resolve(read).model().ShortDebugString(), resolved.ShortDebugString());
  }
}

TEST_F(StartWeightsTest, OfAnotherModelsConfigNothingIsKept) {
  v1::Model model = Resolved();
  model.clear_max_position_embeddings();
  for (const auto& [type, is_origin] : {std::pair("gemma3_text", true), std::pair("llama", false)}) {
    const std::string source = absl::StrCat(R"({"model_type": ")", type,
                                            R"(", "eos_token_id": 7, "sliding_window": 9, "mine": 1,
                                               "max_position_embeddings": 4096})");
    EXPECT_THAT(Exported(model, source, is_origin),
                AllOf(HasSubstr("\"eos_token_id\": null"), HasSubstr("\"max_position_embeddings\": 64"),
                      Not(HasSubstr("sliding_window")), Not(HasSubstr("mine"))));
  }
}

TEST_F(StartWeightsTest, AnExportIsNotOfAQuantisedModel) {
  const std::string text = Exported(
      Resolved(), R"({"model_type": "llama", "quantization_config": {}, "mine": 1})", /*is_origin=*/true);
  EXPECT_THAT(text, AllOf(HasSubstr("\"mine\": 1"), Not(HasSubstr("quantization_config"))));
}

TEST_F(StartWeightsTest, RandomConfigsAreReadOrNamed) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string config = folder_.path() + "/config.json";
  for (int repeat = 0; repeat < 100'000; ++repeat) {
    std::string text = kLlamaConfig;
    for (int damage = static_cast<int>(random() % 4); damage >= 0; --damage) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.insert(at, absl::StrCat(static_cast<int64_t>(random()) >> (random() % 64)));
          break;
        case 2:
          text.insert(at, std::string(1 + random() % 100, '['));
          break;
        default:
          text.erase(at, random() % 8);
      }
    }
    std::filesystem::remove(config);  // a file that is truncated is written to disk when it is closed
    folder_.Write("config.json", text);
    v1::Model model;
    model.set_hugging_face(config);
    for (const v1::Violation& violation : ReadHuggingFace(model)) {
      ASSERT_EQ(violation.path(), "model.hugging_face") << text;
      const std::string line = ToText(violation);
      ASSERT_EQ(line.find('\n'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tandem::jobspec
