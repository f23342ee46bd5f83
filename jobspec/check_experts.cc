// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"

namespace tandem::jobspec {
namespace {

constexpr int64_t kMostExperts = 65536;     // of all layers: each has names, which are checked
constexpr int64_t kMostWithNorms = 16'384;  // of which one message holds all parameters' names, or norms

bool IsMixtral(const v1::Model& model) { return model.model_type() == "mixtral"; }

// Of a model type without sparse layers.
void RefuseExperts(FieldChecker& check, const v1::Model& model) {
  if (check.Usable({"parallelism.expert", "model.model_type"}) && check.spec().parallelism().expert() > 1) {
    check.Refuse("parallelism.expert", absl::StrCat("1 with ", check.Named("model.model_type")),
                 absl::StrCat("it has no experts to share: omit the key, or use model_type: ",
                              ModelTypesThat(&ModelType::has_experts, " or ")));
  }
  if (model.has_moe() && check.IsWritten("model.model_type")) {
    check.Refuse("model.model_type", model.model_type(),
                 absl::StrCat(ModelTypesThat(&ModelType::has_experts), " with a block moe"),
                 "use one of these, or omit the block");
  } else if (model.has_moe()) {
    check.Forbid("model.moe", absl::StrCat(check.Named("model.model_type"),
                                           " has no experts: omit the block, or give model_type: ",
                                           ModelTypesThat(&ModelType::has_experts, ", or ")));
  }
}

// Of layers by a pattern.
bool HasSparseLayer(const v1::Model& model) {
  const std::optional<model::LayerPattern> pattern = PatternOf(model);
  return pattern.has_value() && model::Has(*pattern, model::LayerSymbol::kExperts);
}

// Of a pattern without sparse layers.
void RefuseExpertsOfPattern(FieldChecker& check, const v1::Model& model) {
  if (!check.Usable({"model.hybrid_pattern"})) {
    return;
  }
  const std::string without = absl::StrCat("without an E in ", check.Named("model.hybrid_pattern"));
  if (model.has_moe()) {
    check.Forbid("model.moe", absl::StrCat(without, " no layer has experts: omit the block, or add an E"));
  }
  if (check.Usable({"parallelism.expert"}) && check.spec().parallelism().expert() > 1) {
    check.Refuse("parallelism.expert", absl::StrCat("1 ", without),
                 "there are no experts to share: omit the key, or add an E");
  }
}

void CheckCounts(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (!check.Has("model.moe.num_experts")) {
    check.Refuse("model.moe.num_experts", "say how many experts a sparse layer has");
  }
  if (!check.Has("model.moe.num_experts_per_tok")) {
    check.Refuse("model.moe.num_experts_per_tok", "say how many experts each token uses");
  }
  const int64_t layers = NumLayersOf(model);
  if (check.Usable({"model.moe.num_experts"}) &&
      check.IsOk({"model.num_hidden_layers", "model.hybrid_pattern"}) &&
      moe.num_experts() * layers > kMostExperts) {
    check.Refuse("model.moe.num_experts",
                 absl::StrCat("at most ", kMostExperts / layers, " with ", layers, " layers"),
                 "use fewer experts, or fewer layers");
  }
  if (check.Usable({"model.moe.num_experts", "model.moe.num_experts_per_tok"}) &&
      moe.num_experts_per_tok() > moe.num_experts()) {
    check.Refuse("model.moe.num_experts_per_tok", absl::StrCat("1 to ", check.Named("model.moe.num_experts")),
                 "use a smaller number");
  }
}

void CheckProbabilities(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  const bool mixtral = IsMixtral(model);
  const bool divides = mixtral || model.model_type() == "granitemoehybrid";
  if (divides && check.Usable({"model.moe.norm_topk_prob"}) && !moe.norm_topk_prob()) {
    check.Refuse("model.moe.norm_topk_prob", "false",
                 absl::StrCat("true with model_type ", model.model_type()),
                 absl::StrCat("omit the key, or use model_type: ", mixtral ? "qwen3_moe" : "hybrid"));
  }
  if (check.Usable({"model.moe.num_experts_per_tok", "model.moe.norm_topk_prob"}) &&
      moe.num_experts_per_tok() == 1 && moe.norm_topk_prob()) {
    check.Refuse(
        "model.moe.num_experts_per_tok", "1",
        absl::StrCat("2 or more with norm_topk_prob: true", check.Origin("model.moe.norm_topk_prob")),
        absl::StrCat("divided by their sum, the probability of one expert is always 1, and the router "
                     "would never learn: use more",
                     divides ? "" : ", or norm_topk_prob: false"));
  }
}

void CheckWidth(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (IsMixtral(model) && check.Usable({"model.moe.moe_intermediate_size", "model.intermediate_size"}) &&
      moe.moe_intermediate_size() != model.intermediate_size()) {
    check.Refuse("model.moe.moe_intermediate_size",
                 absl::StrCat("intermediate_size ", model.intermediate_size(), " with model_type mixtral"),
                 "omit the key, or use model_type: qwen3_moe");
  }
}

void CheckSharedExpert(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  constexpr char kWidth[] = "model.moe.shared_expert_intermediate_size";
  if (check.Usable({kWidth}) && !type.may_share_expert) {
    check.Forbid(kWidth,
                 absl::StrCat(check.Named("model.model_type"), " has no use for it: omit the key, or ",
                              type.has_latent_attention
                                  ? "give n_shared_experts"
                                  : absl::StrCat("use model_type: ",
                                                 ModelTypesThat(&ModelType::may_share_expert, " or "))));
  } else if (check.Usable({kWidth}) && (type.pairs || type.shared_expert_gate) &&
             model.moe().shared_expert_intermediate_size() == 0) {
    check.Refuse(kWidth, absl::StrCat("at least 1 with model_type ", model.model_type()),
                 "its experts have an MLP beside them: say how wide it is");
  }
}

// What evens the load of the experts, or bounds it.
void CheckLoad(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (check.Usable({"model.moe.router_aux_loss_coef"}) && moe.router_aux_loss_coef() == 0 &&
      moe.router_aux_loss_scope() != v1::BALANCE_SCOPE_MICROBATCH) {
    check.Forbid(
        "model.moe.router_aux_loss_scope",
        "without a router_aux_loss_coef there is no such loss: omit the key, or give the coefficient");
  }
  if (check.Usable({"model.moe.capacity_factor"}) && moe.capacity_factor() == 0 &&
      moe.drop_policy() == v1::DROP_POLICY_POSITION) {
    check.Forbid("model.moe.drop_policy",
                 "without a capacity_factor no token is dropped: omit the key, or give the factor");
  }
  if (check.Usable({"model.moe.capacity_factor"}) && moe.capacity_factor() == 0 && moe.pad_to_capacity()) {
    check.Refuse(
        "model.moe.pad_to_capacity", "true", "false without a capacity_factor",
        "omit the key: an expert that has room for all tokens would compute as many rows; or give the "
        "factor");
  }
  if (check.Usable({"model.moe.pad_to_capacity", "parallelism.dispatch.rows_at_a_time"}) &&
      moe.pad_to_capacity() && check.Has("parallelism.dispatch.rows_at_a_time")) {
    check.Forbid(
        "parallelism.dispatch.rows_at_a_time",
        absl::StrCat("with pad_to_capacity: true", check.Origin("model.moe.pad_to_capacity"),
                     " rows are computed all at once, and are no more than the factor says: omit one "
                     "of the two"));
  }
  if (check.Usable({"model.moe.capacity_factor", "model.moe.router_bias_update_rate"}) &&
      moe.capacity_factor() > 0 && moe.router_bias_update_rate() > 0) {
    check.Refuse("model.moe.capacity_factor",
                 absl::StrCat("0 with ", check.Named("model.moe.router_bias_update_rate")),
                 "biases even the load without dropping tokens: omit one of the two");
  }
}

void CheckSparseStep(FieldChecker& check, const v1::Model& model) {
  const int64_t step = model.moe().decoder_sparse_step();
  if (check.Usable({"model.moe.decoder_sparse_step", "model.hybrid_pattern"}) && step != 1) {
    check.Refuse("model.moe.decoder_sparse_step", "1 with a hybrid_pattern",
                 "its E are the sparse layers: omit the key");
    return;
  }
  if (IsMixtral(model) && check.Usable({"model.moe.decoder_sparse_step"}) && step != 1) {
    check.Refuse("model.moe.decoder_sparse_step", "1 with model_type mixtral",
                 "omit the key, or use model_type: qwen3_moe");
  } else if (check.Usable({"model.moe.decoder_sparse_step", "model.num_hidden_layers"}) &&
             step > model.num_hidden_layers()) {
    check.Refuse("model.moe.decoder_sparse_step",
                 absl::StrCat("1 to ", check.Named("model.num_hidden_layers")),
                 "no layer is sparse: use a smaller number, or model_type: llama");
  }
}

void CheckSharing(FieldChecker& check, const v1::Model& model) {
  if (check.Usable({"model.moe.num_experts", "parallelism.expert"}) &&
      model.moe().num_experts() % check.spec().parallelism().expert() != 0) {
    check.Refuse("parallelism.expert", absl::StrCat("a divisor of ", check.Named("model.moe.num_experts")),
                 "every rank has as many experts: use another number of them, or of ranks that share them");
  }
}

// The norms of every parameter are one report.
void CheckReportedExperts(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (!check.Usable({"model.moe.num_experts", "model.moe.decoder_sparse_step", "report.parameter_norms"}) ||
      !check.IsOk({"model.moe.first_k_dense_replace", "model.num_hidden_layers", "model.hybrid_pattern"}) ||
      !check.spec().report().parameter_norms()) {
    return;
  }
  int64_t experts = 0;
  if (const std::optional<model::LayerPattern> pattern = PatternOf(model); pattern.has_value()) {
    const std::string text = model::LayerPatternText(*pattern);
    experts = std::count(text.begin(), text.end(), 'E') * moe.num_experts();
  } else {
    for (int64_t layer = moe.first_k_dense_replace(); layer < model.num_hidden_layers(); ++layer) {
      experts += (layer + 1) % moe.decoder_sparse_step() == 0 ? moe.num_experts() : 0;
    }
  }
  if (experts > kMostWithNorms) {
    check.Refuse("report.parameter_norms", absl::StrCat("true", check.Origin("report.parameter_norms")),
                 absl::StrCat("false with ", experts, " experts in all layers"),
                 absl::StrCat("a report holds the norms of at most ", kMostWithNorms,
                              ": omit them, or use fewer experts"));
  }
}

}  // namespace

void CheckExperts(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  if (type.letters != nullptr && !check.IsOk({"model.hybrid_pattern"})) {
    return;  // which layers are sparse is not known
  }
  if (type.letters != nullptr ? !HasSparseLayer(model) : !type.has_experts) {
    type.letters != nullptr ? RefuseExpertsOfPattern(check, model) : RefuseExperts(check, model);
    return;
  }
  CheckCounts(check, model);
  CheckProbabilities(check, model);
  CheckWidth(check, model);
  CheckSharedExpert(check, model, type);
  if (type.has_latent_attention) {
    CheckDeepseekExperts(check, model);
  }
  CheckLoad(check, model);
  CheckSparseStep(check, model);
  CheckSharing(check, model);
  CheckReportedExperts(check, model);
}

void CheckBalancedRouting(FieldChecker& check) {
  constexpr char kField[] = "debug.balanced_routing";
  if (!check.Usable({kField}) || !check.spec().debug().balanced_routing()) {
    return;
  }
  if (check.IsOkWithin("model") && !check.spec().model().has_moe()) {
    check.Refuse(kField, "false without experts", "the model has none: omit the key");
  } else if (check.spec().checkpoint().has_directory()) {
    check.Refuse(kField, "false in a job that saves checkpoints",
                 "it is for measuring speed, and what a router without a choice learns is nothing to keep: "
                 "omit checkpoint.directory, or this key");
  } else if (check.Usable({"training.validate_every_steps"}) &&
             check.spec().training().validate_every_steps() > 0) {
    check.Refuse(kField, "false in a job that validates",
                 "it is for measuring speed, and its losses say nothing: set training: "
                 "{validate_every_steps: 0}, or omit this key");
  }
}

}  // namespace tandem::jobspec
