// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"

namespace tandem::jobspec {
namespace {

constexpr char kWindowLayers[] = "model.window_layers";

void CheckWindow(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  if (!check.IsWritten(kWindowLayers) || (model.has_sliding_window() && !type.may_have_window)) {
    return;
  }
  if (!model.has_sliding_window()) {
    check.Forbid(kWindowLayers,
                 "without a sliding_window no layer has one: omit the key, or give the window");
    return;
  }
  if (!check.Usable({kWindowLayers, "model.num_hidden_layers"})) {
    return;
  }
  const auto layers = WindowLayersIn(model.window_layers(), model.num_hidden_layers());
  if (!layers.ok()) {
    check.Refuse(kWindowLayers, std::string(layers.status().message()));
  } else if ((model.model_type() == "mistral" || type.has_experts) &&
             static_cast<int64_t>(layers->size()) != model.num_hidden_layers()) {
    check.Refuse(kWindowLayers, absl::StrCat("all with model_type ", model.model_type()),
                 "its layers all have the window: omit the key, or use model_type: qwen2 or qwen3");
  }
}

void CheckRotation(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  constexpr char kPart[] = "model.partial_rotary_factor";
  if (check.Usable({"model.rotary_embedding"}) && !model.rotary_embedding()) {
    for (const char* const path : {"model.rope_theta", "model.rope_scaling.type", kPart}) {
      if (check.IsWritten(path)) {
        check.Forbid(path,
                     absl::StrCat(check.Named("model.rotary_embedding"), " rotates nothing: omit the key"));
      }
    }
  }
  if (type.partial_rotary_factor != 1 && check.Usable({kPart}) &&
      model.partial_rotary_factor() != type.partial_rotary_factor) {
    check.Refuse(
        kPart, absl::StrCat(NumberText(type.partial_rotary_factor), " with model_type ", model.model_type()),
        "it follows from the model type: omit the key, or use another type");
  }
  if (!check.Usable({kPart, "model.head_dim"})) {
    return;
  }
  const auto rotary =
      static_cast<int64_t>(model.partial_rotary_factor() * static_cast<double>(model.head_dim()));
  if (rotary % 2 != 0 || rotary == 0) {
    const bool follows = !check.IsWritten(kPart);
    check.Refuse(
        follows ? (check.IsWritten("model.head_dim") ? "model.head_dim" : "model.hidden_size") : kPart,
        follows
            ? absl::StrCat("heads of which ", check.Named(kPart), " is an even number of dims")
            : absl::StrCat("a share of ", check.Named("model.head_dim"), " that is an even number of dims"),
        absl::StrCat("rotary embedding turns pairs of dims, and this share has ", rotary,
                     ": use another number"));
  }
}

std::string ScalingPath(const char* key) { return absl::StrCat("model.rope_scaling.", key); }

}  // namespace

void CheckFieldsOfType(FieldChecker& check, const ModelType& type) {
  using Has = std::function<bool(const ModelType&)>;
  const std::pair<const char*, Has> fields[] = {
      {"model.sliding_window", &ModelType::may_have_window},
      {"model.rotary_embedding", &ModelType::may_not_rotate},
      {"model.embedding_multiplier", &ModelType::has_multipliers},
      {"model.attention_multiplier", &ModelType::has_multipliers},
      {"model.residual_multiplier", &ModelType::has_multipliers},
      {"model.logits_scaling", &ModelType::has_multipliers},
      {"model.hybrid_pattern", [](const ModelType& of) { return of.letters != nullptr; }},
      {"model.mamba", [](const ModelType& of) { return of.MayHave('M'); }},
      {"model.gated_delta_net", [](const ModelType& of) { return of.MayHave('G'); }},
      {"model.latent_attention", &ModelType::has_latent_attention},
      {"model.moe.first_k_dense_replace", &ModelType::has_latent_attention},
      {"model.moe.n_shared_experts", &ModelType::has_latent_attention},
      {"model.moe.n_group", &ModelType::has_latent_attention},
      {"model.moe.topk_group", &ModelType::has_latent_attention},
      {"model.moe.routed_scaling_factor", &ModelType::has_latent_attention},
  };
  const auto forbid_unless = [&](bool is_of_type, const char* path, const Has& has) {
    if (check.IsWritten(path) && !is_of_type) {
      check.Forbid(path, absl::StrCat(check.Named("model.model_type"), " has no use for it: omit the ",
                                      FindField(path)->message_type() == nullptr ? "key" : "block",
                                      ", or use model_type: ", ModelTypesThat(has, " or ")));
    }
  };
  for (const auto& [path, has] : fields) {
    forbid_unless(has(type), path, has);
  }
  // A type that fixes the share may have it written, which CheckRotation checks.
  forbid_unless(type.may_rotate_partly || type.partial_rotary_factor != 1, "model.partial_rotary_factor",
                &ModelType::may_rotate_partly);
  // In a job of deepseek_v2 it may be 0, which CheckDeepseekExperts checks.
  forbid_unless(type.has_latent_attention, "model.moe.router_bias_update_rate",
                [](const ModelType& of) { return of.score == v1::ROUTER_SCORE_SIGMOID; });
}

void CheckModelType(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  v1::JobSpec of_type;
  of_type.mutable_model()->set_attention_bias(type.attention_bias);
  of_type.mutable_model()->set_qk_norm(type.qk_norm);
  of_type.mutable_model()->set_norms(type.norms);
  of_type.mutable_model()->mutable_moe()->set_score(type.score);
  of_type.mutable_model()->set_attention_gate(type.attention_gate);
  of_type.mutable_model()->set_norms_add_one(type.norms_add_one);
  of_type.mutable_model()->mutable_moe()->set_shared_expert_gate(type.shared_expert_gate);
  for (const char* const path :
       {"model.attention_bias", "model.qk_norm", "model.norms", "model.moe.score", "model.attention_gate",
        "model.norms_add_one", "model.moe.shared_expert_gate"}) {
    const std::string allowed = ValueText(FindValue(of_type, path));
    const bool may_be_all = type.may_have_bias && path == std::string_view("model.attention_bias");
    if (check.Usable({path}) &&
        (type.has_experts || model.has_moe() || path != std::string_view("model.moe.score")) &&
        !(may_be_all && model.attention_bias() == v1::ATTENTION_BIAS_ALL) &&
        ValueText(FindValue(check.spec(), path)) != allowed) {
      check.Refuse(path,
                   absl::StrCat(allowed, may_be_all ? ", all" : "", " with model_type ", model.model_type()),
                   "it follows from the model type: omit the key, or use another type");
    }
  }
  CheckWindow(check, model, type);
  CheckRotation(check, model, type);
  if (check.IsWritten("model.attention_multiplier") && !model.has_num_attention_heads() &&
      check.IsOk({"model.attention_multiplier", "model.num_attention_heads"})) {
    check.Forbid("model.attention_multiplier", "no layer attends: omit the key");
  }
}

void CheckRopeScaling(FieldChecker& check, const v1::Model& model) {
  if (!model.has_rope_scaling()) {
    return;
  }
  const v1::RopeScaling& scaling = model.rope_scaling();
  if (!check.Has(ScalingPath("type"))) {
    check.Refuse(ScalingPath("type"), "give it, or omit the block");
    return;
  }
  if (!check.IsOk({ScalingPath("type")})) {
    return;
  }
  const bool llama3 = scaling.type() == v1::ROPE_TYPE_LLAMA3;
  const bool yarn = scaling.type() == v1::ROPE_TYPE_YARN;
  std::vector<const char*> needed = {"factor"};
  if (llama3 || yarn) {
    needed.push_back("original_max_position_embeddings");
  }
  for (const char* const key : needed) {
    if (!check.Has(ScalingPath(key))) {
      check.Refuse(ScalingPath(key), absl::StrCat(check.Named(ScalingPath("type")), " needs it"));
    }
  }
  const auto refuse = [&](bool is_allowed, std::initializer_list<const char*> keys) {
    for (const char* const key : keys) {
      if (!is_allowed && check.IsWritten(ScalingPath(key))) {
        check.Forbid(ScalingPath(key),
                     absl::StrCat(check.Named(ScalingPath("type")), " has no use for it: omit the key"));
      }
    }
  };
  refuse(llama3 || yarn, {"original_max_position_embeddings"});
  refuse(llama3, {"low_freq_factor", "high_freq_factor"});
  refuse(yarn, {"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate"});
  if (llama3 && check.Usable({ScalingPath("low_freq_factor"), ScalingPath("high_freq_factor")}) &&
      scaling.low_freq_factor() >= scaling.high_freq_factor()) {
    check.Refuse(ScalingPath("low_freq_factor"),
                 absl::StrCat("less than ", check.Named(ScalingPath("high_freq_factor"))),
                 "use a smaller number");
  }
}

}  // namespace tandem::jobspec
