// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"

namespace tandem::jobspec {
namespace {

constexpr char kSlidingWindow[] = "model.sliding_window";
constexpr char kWindowLayers[] = "model.window_layers";

void CheckWindow(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  if (model.has_sliding_window() && !type.may_have_window) {
    check.Forbid(kSlidingWindow,
                 absl::StrCat(check.Named("model.model_type"), " has none: omit the key, or use model_type: ",
                              ModelTypesThat(&ModelType::may_have_window, " or ")));
    return;
  }
  if (!check.IsWritten(kWindowLayers)) {
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

// What only some types may have.
void CheckRotation(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  constexpr char kPart[] = "model.partial_rotary_factor";
  if (!check.Usable({kPart})) {
    return;
  }
  if (!type.may_rotate_partly) {
    check.Forbid(kPart, absl::StrCat(check.Named("model.model_type"),
                                     " has no use for it: omit the key, or use model_type: ",
                                     ModelTypesThat(&ModelType::may_rotate_partly, " or ")));
    return;
  }
  const auto rotary =
      static_cast<int64_t>(model.partial_rotary_factor() * static_cast<double>(model.head_dim()));
  if (check.Usable({"model.head_dim"}) && (rotary % 2 != 0 || rotary == 0)) {
    check.Refuse(
        kPart, absl::StrCat("a share of ", check.Named("model.head_dim"), " that is an even number of dims"),
        absl::StrCat("rotary embedding turns pairs of dims, and this share has ", rotary,
                     ": use another number"));
  }
}

}  // namespace

void CheckModelType(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  v1::JobSpec of_type;
  of_type.mutable_model()->set_attention_bias(type.attention_bias);
  of_type.mutable_model()->set_qk_norm(type.qk_norm);
  of_type.mutable_model()->set_norms(type.norms);
  of_type.mutable_model()->mutable_moe()->set_score(type.score);
  for (const char* const path : {"model.attention_bias", "model.qk_norm", "model.norms", "model.moe.score"}) {
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
}

}  // namespace tandem::jobspec
