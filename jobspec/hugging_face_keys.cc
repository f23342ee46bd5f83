// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_keys.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/hugging_face_fields.h"
#include "jobspec/model_types.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

using KeyJson = nlohmann::json;

// Fields that change the numbers, and the only values with which we compute the same ones; null is one of
// them, but of is_never_null, which transformers takes for another.
struct Supported {
  const char* key;
  const char* value;  // JSON
  bool is_never_null = false;
};
constexpr Supported kSupported[] = {
    {"hidden_act", "\"silu\"", true},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"attention_dropout", "0"},
    {"partial_rotary_factor", "1"},
    {"pretraining_tp", "1"},
    {"quantization_config", "null"},
    {"no_rope_layers", "null"},
    {"logits_soft_cap", "null"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"attention_multiplier", "null"},
    {"logits_scaling", "1"},
    {"qk_norm", "false"},
    {"use_qk_norm", "false"},
    {"use_mrope", "false"},
    {"router_jitter_noise", "0"},
    {"mlp_only_layers", "[]"},
    {"output_router_logits", "false"},
    {"rope_interleave", "true", true},
    {"moe_layer_freq", "1"},
    {"pruned_heads", "{}"},
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    {"tie_encoder_decoder", "false"},
    {"clip_qkv", "null"},
};

// Fields that do not change what a model computes in training: where it comes from, how text is made with it,
// which kernels another program would use, weights of auxiliary losses (which are of jobs). Nor do those
// whose names begin with "_". Any other field that is not known may change it, and is refused.
constexpr std::string_view kWithoutConsequence[] = {
    "architectures", "model_type",
    // Read elsewhere; the last counts together with rope_scaling alone.
    "rope_parameters", "rope_scaling", "original_max_position_embeddings",
    // Of files and programs.
    "transformers_version", "name_or_path", "auto_map", "torch_dtype", "dtype", "use_bfloat16", "torchscript",
    "tf_legacy_loss", "attn_implementation", "gradient_checkpointing", "use_cache", "return_dict",
    "output_hidden_states", "output_attentions", "chunk_size_feed_forward", "ep_size", "is_decoder",
    // Of vocabularies and tasks.
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id",
    "tokenizer_class", "prefix", "finetuning_task", "task_specific_params", "problem_type", "id2label",
    "label2id", "num_labels", "cross_attention_hidden_size",
    // Of generation.
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    // Of auxiliary losses.
    "router_aux_loss_coef", "aux_loss_alpha", "seq_aux",
    // What follows from other fields, or counts only together with one that is refused.
    "qk_head_dim", "num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok", "head_dim"};

// Which layers have a sliding window; of a family that has none they must say so.
constexpr const char* kWindow[] = {"sliding_window", "use_sliding_window", "max_window_layers",
                                   "layer_types"};
// Layers that predict further tokens, behind the others: their weights are left out.
constexpr const char* kPredicting[] = {"num_nextn_predict_layers", "num_mtp_layers"};

bool IsKnown(std::string_view key) {
  return key.starts_with('_') || key == "scoring_func" || key == "topk_method" ||
         std::find(std::begin(kWindow), std::end(kWindow), key) != std::end(kWindow) ||
         std::find(std::begin(kPredicting), std::end(kPredicting), key) != std::end(kPredicting) ||
         std::find(std::begin(kWithoutConsequence), std::end(kWithoutConsequence), key) !=
             std::end(kWithoutConsequence) ||
         std::any_of(std::begin(kSupported), std::end(kSupported),
                     [&](const Supported& supported) { return supported.key == key; });
}

bool MayHaveBias(const HuggingFaceFamily& family) { return FindModelType(family.model_type)->may_have_bias; }

class KeyChecker {
 public:
  KeyChecker(const KeyJson& config, const HuggingFaceFamily* family, const RefuseKey& refuse)
      : config_(config), family_(family), refuse_(refuse) {}

  std::set<std::string> Check() {
    CheckSupported();
    CheckPredicting();
    CheckKnown();
    return std::move(refused_);
  }

 private:
  KeyJson Of(const char* key) const { return config_.value(key, KeyJson()); }

  void Refuse(const std::string& key, const KeyJson& value, const std::string& allowed,
              const std::string& remedy) {
    refuse_(absl::StrCat(key, " ", value.dump()), allowed, remedy);
    refused_.insert(key);
  }

  void CheckPredicting() {
    const bool allowed = family_ != nullptr && family_->has_latent_attention;
    for (const char* const key : kPredicting) {
      const KeyJson value = Of(key);
      if (!value.is_null() && value != 0 && !(allowed && value.is_number_unsigned())) {
        Refuse(key, value, allowed ? "an integer >= 0" : "0",
               allowed ? "mend the file" : "not built yet: layers that predict further tokens");
      }
    }
  }

  void CheckKnown() {
    constexpr size_t kMostShown = 5;
    std::vector<std::string> unknown;
    for (const auto& [key, value] : config_.items()) {
      if (!value.is_null() && !IsKnown(key) && !IsFieldKey(key) && !IsOwn(key)) {
        unknown.push_back(platform::Shown(key));
      }
    }
    if (unknown.empty()) {
      return;
    }
    const size_t more = unknown.size() - std::min(unknown.size(), kMostShown);
    unknown.resize(std::min(unknown.size(), kMostShown));
    refuse_(
        absl::StrCat("a file with ", absl::StrJoin(unknown, ", "),
                     more > 0 ? absl::StrCat(" and ", more, " more") : ""),
        "a file of known fields",
        "these may change the numbers: remove them from a copy of the file if they do not, or use another "
        "model");
  }

  bool IsOwn(const std::string& key) const {
    if (family_ == nullptr) {
      return false;
    }
    const KeyJson keys = KeyJson::parse(family_->own_keys);
    return std::find(keys.begin(), keys.end(), key) != keys.end() ||
           KeyJson::parse(family_->must_be).contains(key);
  }

  void CheckSupported() {
    const KeyJson must_be = family_ == nullptr ? KeyJson::object() : KeyJson::parse(family_->must_be);
    for (const auto& [key, value] : must_be.items()) {
      const KeyJson here = Of(key.c_str());
      const bool greedy = key == "topk_method" && value == "greedy";
      if (greedy && here == kGroupLimited) {
        continue;  // its groups are read
      }
      // A null would be a method that transformers does not know.
      const bool no_method = greedy && config_.contains(key);
      if ((!here.is_null() || no_method) && here != value) {
        RefuseOther(key, here,
                    greedy ? absl::StrCat(value.dump(), ", \"", kGroupLimited, "\"") : value.dump());
      }
    }
    for (const char* const key : {"scoring_func", "topk_method"}) {
      if (const KeyJson here = Of(key); !here.is_null() && !must_be.contains(key)) {
        RefuseOther(key, here, "null");
      }
    }
    for (const Supported& supported : kSupported) {
      const auto found = config_.find(supported.key);
      if (found == config_.end() || (found->is_null() && !supported.is_never_null) ||
          *found == KeyJson::parse(supported.value) || IsOwn(supported.key)) {
        continue;
      }
      if (supported.key == std::string_view("attention_bias") && family_ != nullptr) {
        if (family_->model_type == std::string_view("qwen2") || HasBiases(config_, *family_)) {
          continue;  // not a key of that family, whose biases are always there; or read
        }
        if (MayHaveBias(*family_)) {
          Refuse(supported.key, *found, "true, false", "mend the file");
          continue;
        }
      }
      RefuseOther(supported.key, *found, supported.value);
    }
  }

  void RefuseOther(const std::string& key, const KeyJson& value, const std::string& allowed) {
    Refuse(key, value, allowed,
           key == "quantization_config"
               ? "the weights are quantised: cast the model to bf16 first"
               : "not built yet, and it changes the numbers: use a model without it");
  }

  const KeyJson& config_;
  const HuggingFaceFamily* const family_;
  const RefuseKey& refuse_;
  std::set<std::string> refused_;
};

}  // namespace

std::set<std::string> CheckKeys(const nlohmann::json& config, const HuggingFaceFamily* family,
                                const RefuseKey& refuse) {
  return KeyChecker(config, family, refuse).Check();
}

bool HasBiases(const nlohmann::json& config, const HuggingFaceFamily& family) {
  return MayHaveBias(family) && config.value("attention_bias", KeyJson()) == true;
}

}  // namespace tandem::jobspec
