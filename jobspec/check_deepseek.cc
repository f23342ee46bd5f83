// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {

void CheckLatentAttention(FieldChecker& check, const v1::Model& model) {
  for (const char* path : {"model.latent_attention.kv_lora_rank", "model.latent_attention.qk_nope_head_dim",
                           "model.latent_attention.qk_rope_head_dim", "model.latent_attention.v_head_dim"}) {
    if (!check.Has(path)) {
      check.Refuse(path, absl::StrCat("model_type ", model.model_type(), " needs it"));
    }
  }
  const v1::LatentAttention& latent = model.latent_attention();
  for (const char* path :
       {"model.latent_attention.qk_nope_head_dim", "model.latent_attention.qk_rope_head_dim"}) {
    const int64_t dims = path == std::string_view("model.latent_attention.qk_nope_head_dim")
                             ? latent.qk_nope_head_dim()
                             : latent.qk_rope_head_dim();
    if (check.Usable({path}) && dims % 2 != 0) {
      check.Refuse(path, "an even number", absl::StrCat("use ", dims + 1));
    }
  }
  if (check.Usable({"model.num_attention_heads", "model.num_key_value_heads"}) &&
      model.num_key_value_heads() != model.num_attention_heads()) {
    check.Refuse(
        "model.num_key_value_heads",
        absl::StrCat(check.Named("model.num_attention_heads"), " with model_type ", model.model_type()),
        "every head has keys and values of its own there: omit the key");
  }
  if (!check.Usable({"model.latent_attention.qk_nope_head_dim", "model.latent_attention.qk_rope_head_dim"})) {
    return;
  }
  const int64_t head_dim = latent.qk_nope_head_dim() + latent.qk_rope_head_dim();
  if (check.Usable({"model.head_dim"}) && model.head_dim() != head_dim) {
    check.Refuse("model.head_dim", absl::StrCat("qk_nope_head_dim + qk_rope_head_dim, which is ", head_dim),
                 "omit the key");
  }
  if (check.Usable({"model.latent_attention.v_head_dim"}) && latent.v_head_dim() > head_dim) {
    check.Refuse("model.latent_attention.v_head_dim",
                 absl::StrCat("1 to qk_nope_head_dim + qk_rope_head_dim, which is ", head_dim),
                 "use a smaller number");
  }
}

namespace {

// Of deepseek_v2: softmax scores, which stay as they are.
void CheckSoftmaxExperts(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  constexpr char kType[] = " with model_type deepseek_v2";
  // transformers makes no such model.
  if (check.Usable({"model.hidden_size", "model.num_attention_heads"}) &&
      model.hidden_size() % model.num_attention_heads() != 0) {
    check.Refuse("model.hidden_size",
                 absl::StrCat("a multiple of ", check.Named("model.num_attention_heads"), kType),
                 "use another number, or model_type: deepseek_v3");
  }
  if (check.Usable({"model.moe.n_shared_experts"}) && moe.n_shared_experts() == 0) {
    check.Refuse("model.moe.n_shared_experts", absl::StrCat("1 to 1024", kType),
                 "its sparse layers have some: use another number, or model_type: deepseek_v3");
  }
  if (check.Usable({"model.moe.router_bias_update_rate"}) && moe.router_bias_update_rate() != 0) {
    check.Refuse("model.moe.router_bias_update_rate", absl::StrCat("0", kType),
                 "its routers have no biases: omit the key, or use model_type: deepseek_v3");
  }
  if (check.Usable({"model.moe.norm_topk_prob"}) && moe.norm_topk_prob()) {
    check.Refuse("model.moe.norm_topk_prob", absl::StrCat("false", kType),
                 "omit the key, or use model_type: deepseek_v3");
  }
}

// A token's experts are of topk_group of n_group equal groups, compared by so many of their best experts.
void CheckGroups(FieldChecker& check, const v1::MixtureOfExperts& moe, int64_t best) {
  if (!check.Usable({"model.moe.n_group", "model.moe.num_experts"})) {
    return;
  }
  if (moe.num_experts() % moe.n_group() != 0) {
    check.Refuse("model.moe.n_group", absl::StrCat("a divisor of ", check.Named("model.moe.num_experts")),
                 "groups are of one size: use another number");
    return;
  }
  if (!check.Usable({"model.moe.topk_group"}) || moe.topk_group() == moe.n_group()) {
    return;
  }
  const int64_t size = moe.num_experts() / moe.n_group();
  if (moe.topk_group() > moe.n_group()) {
    check.Refuse("model.moe.topk_group", absl::StrCat("1 to ", check.Named("model.moe.n_group")),
                 "use a smaller number");
  } else if (size < best) {
    check.Refuse("model.moe.n_group", absl::StrCat("at most half of ", check.Named("model.moe.num_experts")),
                 "groups are compared by their two best experts: use fewer");
  } else if (check.Usable({"model.moe.num_experts_per_tok"}) &&
             moe.num_experts_per_tok() > moe.topk_group() * size) {
    check.Refuse(
        "model.moe.topk_group",
        absl::StrCat((moe.num_experts_per_tok() + size - 1) / size, " to ", check.Named("model.moe.n_group"),
                     " with ", check.Named("model.moe.num_experts_per_tok"), " and groups of ", size),
        "a token's experts are of these groups: use a larger number");
  }
}

}  // namespace

void CheckDeepseekExperts(FieldChecker& check, const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (check.Usable({"model.moe.first_k_dense_replace", "model.num_hidden_layers"}) &&
      moe.first_k_dense_replace() >= model.num_hidden_layers()) {
    check.Refuse("model.moe.first_k_dense_replace",
                 absl::StrCat("less than ", check.Named("model.num_hidden_layers")),
                 "no layer is sparse: use a smaller number");
  }
  if (check.Usable({"model.moe.decoder_sparse_step"}) && moe.decoder_sparse_step() != 1) {
    check.Refuse("model.moe.decoder_sparse_step", absl::StrCat("1 with model_type ", model.model_type()),
                 "omit the key, or use first_k_dense_replace");
  }
  const bool is_softmax = model.model_type() == "deepseek_v2";
  if (is_softmax) {
    CheckSoftmaxExperts(check, model);
  }
  CheckGroups(check, moe, is_softmax ? 1 : 2);
}

}  // namespace tandem::jobspec
