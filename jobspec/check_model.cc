// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/checks.h"
#include "jobspec/field_rules.h"
#include "jobspec/presets.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"

namespace tandem::jobspec {
namespace {

constexpr char kDeepseek[] = "deepseek_v3";
constexpr int64_t kMostExperts = 65536;     // of all layers: each has names, which are checked
constexpr int64_t kMostWithNorms = 16'384;  // of which one message holds all parameters' names, or norms

constexpr int64_t kMostNormedOnGpus = 256;  // what GPUs have kernels for: ops/row_work.h

// The norms of every parameter are one report.
void CheckReportedExperts(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (!check.Usable({"model.num_hidden_layers", "model.moe.num_experts", "model.moe.decoder_sparse_step",
                     "report.parameter_norms"}) ||
      !check.IsOk({"model.moe.first_k_dense_replace"}) || !check.spec().report().parameter_norms()) {
    return;
  }
  int64_t experts = 0;
  for (int64_t layer = moe.first_k_dense_replace(); layer < model.num_hidden_layers(); ++layer) {
    experts += (layer + 1) % moe.decoder_sparse_step() == 0 ? moe.num_experts() : 0;
  }
  if (experts > kMostWithNorms) {
    check.Refuse("report.parameter_norms", absl::StrCat("true", check.Origin("report.parameter_norms")),
                 absl::StrCat("false with ", experts, " experts in all layers"),
                 absl::StrCat("a report holds the norms of at most ", kMostWithNorms,
                              ": omit them, or use fewer experts"));
  }
}

void CheckExperts(FieldChecker& check, const v1::Model& model, bool sparse) {
  const int64_t sharing = check.spec().parallelism().expert();
  if (!sparse) {
    if (check.Usable({"parallelism.expert", "model.model_type"}) && sharing > 1) {
      check.Refuse(
          "parallelism.expert", absl::StrCat("1 with ", check.Named("model.model_type")),
          "it has no experts to share: omit the key, or use model_type: mixtral, qwen3_moe or deepseek_v3");
    }
    if (model.has_moe() && check.IsWritten("model.model_type")) {
      check.Refuse("model.model_type", model.model_type(), "mixtral, qwen3_moe, deepseek_v3 with a block moe",
                   "use one of these, or omit the block");
    } else if (model.has_moe()) {
      check.Forbid("model.moe", absl::StrCat(check.Named("model.model_type"),
                                             " has no experts: omit the block, or give model_type: mixtral, "
                                             "qwen3_moe, or deepseek_v3"));
    }
    return;
  }
  const v1::MixtureOfExperts& moe = model.moe();
  if (!check.Has("model.moe.num_experts")) {
    check.Refuse("model.moe.num_experts", "say how many experts a sparse layer has");
  }
  if (!check.Has("model.moe.num_experts_per_tok")) {
    check.Refuse("model.moe.num_experts_per_tok", "say how many experts each token uses");
  }
  if (check.Usable({"model.moe.num_experts", "model.num_hidden_layers"}) &&
      moe.num_experts() * model.num_hidden_layers() > kMostExperts) {
    check.Refuse("model.moe.num_experts",
                 absl::StrCat("at most ", kMostExperts / model.num_hidden_layers(), " with ",
                              model.num_hidden_layers(), " layers"),
                 "use fewer experts, or fewer layers");
  }
  if (check.Usable({"model.moe.num_experts", "model.moe.num_experts_per_tok"}) &&
      moe.num_experts_per_tok() > moe.num_experts()) {
    check.Refuse("model.moe.num_experts_per_tok", absl::StrCat("1 to ", check.Named("model.moe.num_experts")),
                 "use a smaller number");
  }
  const bool mixtral = model.model_type() == "mixtral";
  if (mixtral && check.Usable({"model.moe.norm_topk_prob"}) && !moe.norm_topk_prob()) {
    check.Refuse("model.moe.norm_topk_prob", "false", "true with model_type mixtral",
                 "omit the key, or use model_type: qwen3_moe");
  }
  if (check.Usable({"model.moe.num_experts_per_tok", "model.moe.norm_topk_prob"}) &&
      moe.num_experts_per_tok() == 1 && moe.norm_topk_prob()) {
    check.Refuse(
        "model.moe.num_experts_per_tok", "1",
        absl::StrCat("2 or more with norm_topk_prob: true", check.Origin("model.moe.norm_topk_prob")),
        absl::StrCat("divided by their sum, the probability of one expert is always 1, and the router "
                     "would never learn: use more",
                     mixtral ? "" : ", or norm_topk_prob: false"));
  }
  if (mixtral && check.Usable({"model.moe.moe_intermediate_size", "model.intermediate_size"}) &&
      moe.moe_intermediate_size() != model.intermediate_size()) {
    check.Refuse("model.moe.moe_intermediate_size",
                 absl::StrCat("intermediate_size ", model.intermediate_size(), " with model_type mixtral"),
                 "omit the key, or use model_type: qwen3_moe");
  }
  if (model.model_type() == kDeepseek) {
    CheckDeepseekExperts(check, model);
  }
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
  const int64_t step = moe.decoder_sparse_step();
  if (mixtral && check.Usable({"model.moe.decoder_sparse_step"}) && step != 1) {
    check.Refuse("model.moe.decoder_sparse_step", "1 with model_type mixtral",
                 "omit the key, or use model_type: qwen3_moe");
  } else if (check.Usable({"model.moe.decoder_sparse_step", "model.num_hidden_layers"}) &&
             step > model.num_hidden_layers()) {
    check.Refuse("model.moe.decoder_sparse_step",
                 absl::StrCat("1 to ", check.Named("model.num_hidden_layers")),
                 "no layer is sparse: use a smaller number, or model_type: llama");
  }
  if (check.Usable({"model.moe.num_experts", "parallelism.expert"}) &&
      model.moe().num_experts() % sharing != 0) {
    check.Refuse("parallelism.expert", absl::StrCat("a divisor of ", check.Named("model.moe.num_experts")),
                 "every rank has as many experts: use another number of them, or of ranks that share them");
  }
  CheckReportedExperts(check, model);
}

void CheckHeads(FieldChecker& check, const v1::Model& model) {
  const int64_t heads = model.num_attention_heads();
  const int64_t shared = model.num_key_value_heads();
  if (check.Usable({"model.num_attention_heads", "model.num_key_value_heads"}) && heads % shared != 0 &&
      !check.IsWritten("model.num_key_value_heads")) {
    check.Refuse("model.num_attention_heads",
                 absl::StrCat("a multiple of ", check.Named("model.num_key_value_heads")),
                 absl::StrCat(NearestMultiples(heads, shared, 1024), "; or give num_key_value_heads"));
  } else if (check.Usable({"model.num_attention_heads", "model.num_key_value_heads"}) &&
             heads % shared != 0) {
    std::vector<int64_t> divisors;
    for (int64_t divisor = 1; divisor <= heads; ++divisor) {
      if (heads % divisor == 0) {
        divisors.push_back(divisor);
      }
    }
    check.Refuse("model.num_key_value_heads",
                 absl::StrCat("a divisor of ", check.Named("model.num_attention_heads")),
                 absl::StrCat("use one of ", absl::StrJoin(divisors, ", ")));
  }
  if (check.Usable({"model.hidden_size", "model.num_attention_heads"}) && check.IsOk({"model.head_dim"}) &&
      !model.has_head_dim()) {
    if (check.IsWritten("model.num_attention_heads")) {
      check.Refuse("model.num_attention_heads",
                   absl::StrCat("a divisor of ", check.Named("model.hidden_size")),
                   "use one, or give head_dim");
    } else {
      check.Refuse("model.hidden_size",
                   absl::StrCat("a multiple of ", check.Named("model.num_attention_heads")),
                   absl::StrCat(NearestMultiples(model.hidden_size(), heads, 1 << 20), "; or give head_dim"));
    }
  }
  if (!check.Usable({"model.head_dim"})) {
    return;
  }
  const int64_t head_dim = model.head_dim();
  if (check.IsWritten("model.head_dim")) {
    if (head_dim % 2 != 0) {
      check.Refuse("model.head_dim", "an even number from 2 to 4096",
                   absl::StrCat("rotary embedding turns pairs of elements: use ", head_dim + 1));
    }
  } else if (check.Usable({"model.hidden_size", "model.num_attention_heads"}) &&
             (head_dim % 2 != 0 || head_dim > 4096)) {
    const bool is_heads = check.IsWritten("model.num_attention_heads");
    check.Refuse(is_heads ? "model.num_attention_heads" : "model.hidden_size",
                 absl::StrCat(is_heads ? heads : model.hidden_size()), "heads of an even size from 2 to 4096",
                 absl::StrCat(check.Named("model.hidden_size"), " / ", heads, " heads",
                              check.Origin("model.num_attention_heads"), " is ", head_dim,
                              ": use another number, or give head_dim"));
  }
  if (head_dim > 4096) {
    return;  // refused already
  }
  if (model.model_type() == "qwen3_moe" && head_dim > kMostNormedOnGpus && check.IsOk({"resources.device"}) &&
      check.spec().resources().device() != v1::DEVICE_CPU) {
    const char* const path = check.IsWritten("model.head_dim") ? "model.head_dim" : "model.hidden_size";
    check.Refuse(path,
                 absl::StrCat("heads of at most ", kMostNormedOnGpus,
                              " with model_type qwen3_moe and resources.device ",
                              ValueText(FindValue(check.spec(), "resources.device")),
                              check.Origin("resources.device")),
                 "GPUs normalise no larger ones: use smaller heads, or device: cpu");
  }
}

}  // namespace

void CheckModel(FieldChecker& check) {
  const v1::Model& model = check.spec().model();
  if (model.has_preset() && FindPreset(model.preset()) == nullptr) {
    const std::string closest = Closest(model.preset(), PresetNames());
    check.Refuse("model.preset", closest.empty() ? "use one of these, or give the fields of the model"
                                                 : absl::StrCat("did you mean ", closest, "?"));
    return;
  }
  if (model.has_hugging_face()) {
    if (model.has_preset()) {
      check.Forbid("model.hugging_face", "model.preset is given too: omit one of the two");
    } else {
      check.Forbid(
          "model.hugging_face",
          "tandem submit and tandem run replace it by the fields of that file: use them, or give the "
          "fields yourself");
    }
    return;
  }
  const bool deepseek = model.model_type() == kDeepseek;
  const bool sparse = deepseek || model.model_type() == "mixtral" || model.model_type() == "qwen3_moe";
  if (!sparse && model.model_type() != "llama") {
    check.Refuse("model.model_type", "not built yet: other architectures; use one of these");
    return;
  }
  const std::vector<std::string> sizes = {"model.hidden_size", "model.intermediate_size",
                                          "model.num_hidden_layers", "model.num_attention_heads",
                                          "model.vocab_size"};
  if (std::none_of(sizes.begin(), sizes.end(),
                   [&](const auto& path) { return check.Has(path) || !check.IsOk({path}); })) {
    check.Refuse(
        "model", "",
        absl::StrCat("a preset (", absl::StrJoin(PresetNames(), ", "), "), hugging_face, or the fields"),
        "for instance model: {preset: llama-tiny}");
    return;
  }
  for (const std::string& path : sizes) {
    if (!check.Has(path)) {
      check.Refuse(path, "give it, or name a preset whose value is to be used");
    }
  }
  if (deepseek) {
    CheckLatentAttention(check, model);
  } else {
    CheckHeads(check, model);
    RefuseDeepseekFields(check, model);
  }
  CheckExperts(check, model, sparse);
  if (check.Usable({"model.vocab_size", "data.tokenizer"}) && check.spec().data().tokenizer() == "bytes" &&
      model.vocab_size() < 256) {
    check.Refuse("model.vocab_size", "at least 256 with tokenizer: bytes", "a byte has 256 values: use 256");
  }
}

}  // namespace tandem::jobspec
