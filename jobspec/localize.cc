// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "jobspec/jobspec.h"
#include "jobspec/resume.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "platform/file_list.h"
#include "platform/files.h"

namespace tandem::jobspec {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxBytes = 1 << 20;
constexpr char kPath[] = "model.hugging_face";

// Fields that change the numbers, and the only values with which we compute the same ones.
struct Supported {
  const char* key;
  const char* value;  // JSON
};
constexpr Supported kSupported[] = {
    {"hidden_act", "\"silu\""},
    {"rope_scaling", "null"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"attention_dropout", "0"},
    {"sliding_window", "null"},
    {"partial_rotary_factor", "1"},
    {"pretraining_tp", "1"},
    {"quantization_config", "null"},
    {"layer_types", "null"},
    {"no_rope_layers", "null"},
    {"logits_soft_cap", "null"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"attention_multiplier", "null"},
    {"logits_scaling", "1"},
    {"qk_norm", "false"},
    {"use_qk_norm", "false"},
    {"router_jitter_noise", "0"},
    {"mlp_only_layers", "[]"},
    {"use_sliding_window", "false"},
    {"output_router_logits", "false"},
    {"rope_interleave", "true"},
    {"scoring_func", "\"sigmoid\""},
    {"topk_method", "\"noaux_tc\""},
    {"moe_layer_freq", "1"},
    {"num_nextn_predict_layers", "0"},
    {"num_mtp_layers", "0"},
};

// Models that have our layers, under our names of their parameters.
struct Architecture {
  const char* name;
  const char* model_type;
  bool has_experts;
  bool has_latent_attention = false;
};
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", false},
    {"MixtralForCausalLM", "mixtral", true},
    {"Qwen3MoeForCausalLM", "qwen3_moe", true},
    {"DeepseekV3ForCausalLM", "deepseek_v3", true, true},
};

// What Hugging Face's LlamaConfig takes where the file is silent; ours differ.
constexpr double kDefaultRmsNormEps = 1e-6;

class HuggingFaceReader {
 public:
  HuggingFaceReader(v1::Model& model, std::vector<v1::Violation>& violations)
      : model_(model), violations_(violations) {}

  // Fills the fields that the spec leaves out.
  void Read() {
    const size_t before = violations_.size();
    std::string file = model_.hugging_face();
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) {
      file += "/config.json";
    }
    if (!Load(file)) {
      return;
    }
    CheckArchitecture();
    CheckSupported();
    ReadSize(model_, "hidden_size", true, &v1::Model::has_hidden_size, &v1::Model::set_hidden_size);
    ReadSize(model_, "intermediate_size", true, &v1::Model::has_intermediate_size,
             &v1::Model::set_intermediate_size);
    ReadSize(model_, "num_hidden_layers", true, &v1::Model::has_num_hidden_layers,
             &v1::Model::set_num_hidden_layers);
    ReadSize(model_, "num_attention_heads", true, &v1::Model::has_num_attention_heads,
             &v1::Model::set_num_attention_heads);
    ReadSize(model_, "num_key_value_heads", false, &v1::Model::has_num_key_value_heads,
             &v1::Model::set_num_key_value_heads);
    if (architecture_ != nullptr && architecture_->has_latent_attention) {
      ReadLatentAttention(*model_.mutable_latent_attention());  // its head_dim is another
    } else {
      ReadSize(model_, "head_dim", false, &v1::Model::has_head_dim, &v1::Model::set_head_dim);
    }
    ReadSize(model_, "vocab_size", true, &v1::Model::has_vocab_size, &v1::Model::set_vocab_size);
    ReadSize(model_, "max_position_embeddings", false, &v1::Model::has_max_position_embeddings,
             &v1::Model::set_max_position_embeddings);
    ReadNumber(model_, "rms_norm_eps", kDefaultRmsNormEps, &v1::Model::has_rms_norm_eps,
               &v1::Model::set_rms_norm_eps);
    ReadNumber(model_, "rope_theta", RopeTheta(), &v1::Model::has_rope_theta, &v1::Model::set_rope_theta);
    ReadNumber(model_, "initializer_range", 0.02, &v1::Model::has_initializer_range,
               &v1::Model::set_initializer_range);
    ReadFlag(model_, "tie_word_embeddings", false, &v1::Model::has_tie_word_embeddings,
             &v1::Model::set_tie_word_embeddings);
    if (architecture_ != nullptr && architecture_->has_experts) {
      ReadExperts(*model_.mutable_moe());
    }
    if (violations_.size() == before) {
      if (!model_.has_model_type()) {
        model_.set_model_type(architecture_->model_type);
      }
      model_.clear_hugging_face();
    }
  }

 private:
  void Refuse(const std::string& value, const std::string& allowed, const std::string& remedy) {
    violations_.push_back(MakeViolation(kPath, value, allowed, remedy));
  }

  bool Load(const std::string& file) {
    platform::Files& files = platform::SystemFiles();
    const absl::StatusOr<int64_t> bytes = files.Size(file);
    if (bytes.ok() && *bytes > kMaxBytes) {
      Refuse(file, absl::StrCat("a config.json of at most ", kMaxBytes, " bytes"), "is this the right file?");
      return false;
    }
    const absl::StatusOr<std::string> text = bytes.ok() ? files.Read(file) : bytes.status();
    if (!text.ok()) {
      Refuse(file, "path of a config.json",
             std::string(absl::StripPrefix(text.status().message(), absl::StrCat("open ", file, ": "))));
      return false;
    }
    try {
      // The callback bounds the depth: the parser itself keeps a stack, but destroying a deep value recurses.
      json_ = Json::parse(*text, [](int depth, Json::parse_event_t, Json&) { return depth < 32; });
    } catch (const Json::exception& e) {
      Refuse(file, "a JSON file", Shown(e.what(), 200));
      return false;
    }
    if (!json_.is_object()) {
      Refuse(file, "a JSON object", "is this the config.json of a model?");
      return false;
    }
    return true;
  }

  void CheckArchitecture() {
    const Json architectures = json_.value("architectures", Json());
    const Json type = json_.value("model_type", Json());
    for (const Architecture& known : kArchitectures) {
      const bool listed =
          architectures.is_array() && architectures.size() == 1 && architectures[0] == known.name;
      if (listed ? type.is_null() || type == known.model_type
                 : architectures.is_null() && type == known.model_type) {
        architecture_ = &known;
        return;
      }
    }
    const auto text = [](std::string* out, const Architecture& known) {
      absl::StrAppend(out, known.name, " (model_type ", known.model_type, ")");
    };
    Refuse(absl::StrCat("architecture ", architectures.is_null() ? type.dump() : architectures.dump()),
           absl::StrJoin(kArchitectures, ", ", text), "not built yet: other architectures; use one of these");
  }

  // Auxiliary losses are of jobs, not of models: theirs are another formula, over all layers at once.
  void ReadExperts(v1::MixtureOfExperts& moe) {
    const char* const count = json_.contains("n_routed_experts")    ? "n_routed_experts"
                              : json_.contains("num_local_experts") ? "num_local_experts"
                                                                    : "num_experts";
    using Moe = v1::MixtureOfExperts;
    ReadSize(moe, count, true, &Moe::has_num_experts, &Moe::set_num_experts);
    ReadSize(moe, "num_experts_per_tok", true, &Moe::has_num_experts_per_tok, &Moe::set_num_experts_per_tok);
    if (std::string_view(architecture_->model_type) == "mixtral") {
      return;  // the others follow
    }
    ReadSize(moe, "moe_intermediate_size", true, &Moe::has_moe_intermediate_size,
             &Moe::set_moe_intermediate_size);
    ReadSize(moe, "decoder_sparse_step", false, &Moe::has_decoder_sparse_step, &Moe::set_decoder_sparse_step);
    ReadFlag(moe, "norm_topk_prob", false, &Moe::has_norm_topk_prob, &Moe::set_norm_topk_prob);
    if (!architecture_->has_latent_attention) {
      return;
    }
    ReadSize(moe, "first_k_dense_replace", true, &Moe::has_first_k_dense_replace,
             &Moe::set_first_k_dense_replace);
    ReadSize(moe, "n_shared_experts", true, &Moe::has_n_shared_experts, &Moe::set_n_shared_experts);
    ReadSize(moe, "n_group", true, &Moe::has_n_group, &Moe::set_n_group);
    ReadSize(moe, "topk_group", true, &Moe::has_topk_group, &Moe::set_topk_group);
    ReadNumber(moe, "routed_scaling_factor", 1, &Moe::has_routed_scaling_factor,
               &Moe::set_routed_scaling_factor);
  }

  void ReadLatentAttention(v1::LatentAttention& latent) {
    using Latent = v1::LatentAttention;
    ReadSize(latent, "q_lora_rank", false, &Latent::has_q_lora_rank, &Latent::set_q_lora_rank);
    ReadSize(latent, "kv_lora_rank", true, &Latent::has_kv_lora_rank, &Latent::set_kv_lora_rank);
    ReadSize(latent, "qk_nope_head_dim", true, &Latent::has_qk_nope_head_dim, &Latent::set_qk_nope_head_dim);
    ReadSize(latent, "qk_rope_head_dim", true, &Latent::has_qk_rope_head_dim, &Latent::set_qk_rope_head_dim);
    ReadSize(latent, "v_head_dim", true, &Latent::has_v_head_dim, &Latent::set_v_head_dim);
  }

  void CheckSupported() {
    for (const Supported& supported : kSupported) {
      const auto found = json_.find(supported.key);
      if (found == json_.end() || found->is_null()) {
        continue;
      }
      if (*found != Json::parse(supported.value)) {
        Refuse(absl::StrCat(supported.key, " ", found->dump()), supported.value,
               "not built yet, and it changes the numbers: use a model without it");
      }
    }
    const auto rope = json_.find("rope_parameters");
    if (rope != json_.end() && !rope->is_null() &&
        (!rope->is_object() || rope->value("rope_type", Json("default")) != "default")) {
      Refuse(absl::StrCat("rope_parameters ", rope->dump()), "rope_type default",
             "not built yet, and it changes the numbers: use a model without it");
    }
  }

  // Newer files keep it in rope_parameters.
  double RopeTheta() const {
    const auto rope = json_.find("rope_parameters");
    if (rope != json_.end() && rope->is_object()) {
      const auto theta = rope->find("rope_theta");
      if (theta != rope->end() && theta->is_number()) {
        return theta->get<double>();
      }
    }
    return 10000;
  }

  // Each sets a field of `message` from the file, where the job leaves it out.
  template <typename Message, typename Integer>
  void ReadSize(Message& message, const char* key, bool required, bool (Message::*has)() const,
                void (Message::*set)(Integer)) {
    if ((message.*has)()) {
      return;
    }
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) {
      if (required) {
        Refuse(absl::StrCat("a file without ", key), absl::StrCat("a config.json with ", key),
               absl::StrCat("add model.", key, " to the job"));
      }
    } else if (!found->is_number_integer() ||
               (found->is_number_unsigned() &&
                found->get<uint64_t>() > uint64_t{std::numeric_limits<Integer>::max()}) ||
               found->get<int64_t>() < std::numeric_limits<Integer>::min()) {
      Refuse(absl::StrCat(key, " ", found->dump()), "an integer", "mend the file");
    } else {
      (message.*set)(found->get<Integer>());
    }
  }

  template <typename Message>
  void ReadNumber(Message& message, const char* key, double fallback, bool (Message::*has)() const,
                  void (Message::*set)(double)) {
    if ((message.*has)()) {
      return;
    }
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) {
      (message.*set)(fallback);
    } else if (!found->is_number()) {
      Refuse(absl::StrCat(key, " ", found->dump()), "a number", "mend the file");
    } else {
      (message.*set)(found->get<double>());
    }
  }

  template <typename Message>
  void ReadFlag(Message& message, const char* key, bool fallback, bool (Message::*has)() const,
                void (Message::*set)(bool)) {
    if ((message.*has)()) {
      return;
    }
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) {
      (message.*set)(fallback);
    } else if (!found->is_boolean()) {
      Refuse(absl::StrCat(key, " ", found->dump()), "true, false", "mend the file");
    } else {
      (message.*set)(found->get<bool>());
    }
  }

  v1::Model& model_;
  std::vector<v1::Violation>& violations_;
  Json json_;
  const Architecture* architecture_ = nullptr;  // of the file, where it is known
};

class PathLocalizer {
 public:
  explicit PathLocalizer(std::vector<v1::Violation>& violations) : violations_(violations) {
    std::error_code error;
    folder_ = std::filesystem::current_path(error).string();
    error_ = error ? error.message() : "";
  }

  std::string Absolute(const char* path, const std::string& value, bool glob) {
    if (value.empty() || value.front() == '/') {
      return value;
    }
    if (value.front() == '~') {
      violations_.push_back(
          MakeViolation(path, value, "a path without ~", "only a shell knows ~: write the folder out"));
      return value;
    }
    if (!error_.empty()) {
      violations_.push_back(MakeViolation(path, value, "an absolute path",
                                          absl::StrCat("the working directory is unknown: ", error_)));
      return value;
    }
    std::string rest = value;
    while (rest.starts_with("./")) {
      rest.erase(0, 2);
    }
    if (rest.empty() || rest == ".") {
      return folder_;
    }
    std::error_code error;
    std::string folder = folder_;
    if (glob && platform::HasGlobCharacters(rest) && !std::filesystem::exists(value, error)) {
      folder = absl::StrReplaceAll(folder, {{"\\", "\\\\"}, {"*", "\\*"}, {"?", "\\?"}, {"[", "\\["}});
    }
    return absl::StrCat(folder, folder == "/" ? "" : "/", rest);
  }

 private:
  std::vector<v1::Violation>& violations_;
  std::string folder_;
  std::string error_;
};

}  // namespace

std::vector<v1::Violation> Localize(v1::JobSpec& spec) {
  std::vector<v1::Violation> violations;
  // A preset beside it is Validate's to refuse.
  if (spec.model().has_hugging_face() && !spec.model().has_preset()) {
    HuggingFaceReader(*spec.mutable_model(), violations).Read();
  }
  PathLocalizer paths(violations);
  if (spec.data().has_train()) {
    spec.mutable_data()->set_train(paths.Absolute("data.train", spec.data().train(), /*glob=*/true));
  }
  if (spec.data().has_validation()) {
    spec.mutable_data()->set_validation(
        paths.Absolute("data.validation", spec.data().validation(), /*glob=*/true));
  }
  if (spec.checkpoint().has_directory()) {
    spec.mutable_checkpoint()->set_directory(
        paths.Absolute("checkpoint.directory", spec.checkpoint().directory(), /*glob=*/false));
  }
  if (IsResumePath(spec.checkpoint().resume())) {
    spec.mutable_checkpoint()->set_resume(
        paths.Absolute("checkpoint.resume", spec.checkpoint().resume(), /*glob=*/false));
  }
  return violations;
}

}  // namespace tandem::jobspec
