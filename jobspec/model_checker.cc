// SPDX-License-Identifier: Apache-2.0
#include "jobspec/model_checker.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/field_rules.h"
#include "jobspec/presets.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"

namespace tandem::jobspec {
namespace {

constexpr char kDeepseek[] = "deepseek_v3";

bool Contains(std::initializer_list<std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool IsSparse(const v1::Model& model, int64_t layer) {
  const int64_t step = model.moe().decoder_sparse_step();
  return step > 0 && (layer + 1) % step == 0 && layer >= model.moe().first_k_dense_replace();
}

std::string NearestMultiples(int64_t value, int64_t unit, int64_t max) {
  const int64_t below = value / unit * unit;
  const int64_t above = below + unit;
  if (below < unit) {
    return absl::StrCat("the nearest is ", above);
  }
  return above > max ? absl::StrCat("the nearest is ", below)
                     : absl::StrCat("the nearest are ", below, " and ", above);
}

void ModelChecker::CheckModel() {
  const v1::Model& model = spec().model();
  if (model.has_preset() && FindPreset(model.preset()) == nullptr) {
    const std::string closest = Closest(model.preset(), PresetNames());
    Refuse("model.preset", closest.empty() ? "use one of these, or give the fields of the model"
                                           : absl::StrCat("did you mean ", closest, "?"));
    return;
  }
  if (model.has_hugging_face()) {
    if (model.has_preset()) {
      Refuse("model.hugging_face", model.hugging_face(), "nothing beside model.preset",
             "omit one of the two");
    } else {
      Refuse("model.hugging_face", model.hugging_face(), "nothing but the fields of that file",
             "tandem submit and tandem run replace it by the fields: use them, or give the fields yourself");
    }
    return;
  }
  const bool sparse = model.model_type() != "llama";
  if (sparse && !Contains({"mixtral", "qwen3_moe", kDeepseek}, model.model_type())) {
    Refuse("model.model_type", "not built yet: other architectures; use one of these");
    return;
  }
  const std::vector<std::string> sizes = {"model.hidden_size", "model.intermediate_size",
                                          "model.num_hidden_layers", "model.num_attention_heads",
                                          "model.vocab_size"};
  if (std::none_of(sizes.begin(), sizes.end(),
                   [&](const auto& path) { return Has(path) || !IsOk({path}); })) {
    Refuse("model", "",
           absl::StrCat("a preset (", absl::StrJoin(PresetNames(), ", "), "), hugging_face, or the fields"),
           "for instance model: {preset: llama-tiny}");
    return;
  }
  for (const std::string& path : sizes) {
    if (!Has(path)) {
      Refuse(path, "give it, or name a preset whose value is to be used");
    }
  }
  if (model.model_type() == kDeepseek) {
    CheckLatentAttention(model);
  } else {
    CheckHeads(model);
    if (model.has_latent_attention()) {
      Refuse("model.latent_attention", "{...}",
             absl::StrCat("nothing with model_type ", model.model_type(), Origin("model.model_type")),
             "omit the block, or give model_type: deepseek_v3");
    }
  }
  CheckExperts(model, sparse);
  if (Usable({"model.vocab_size", "data.tokenizer"}) && spec().data().tokenizer() == "bytes" &&
      model.vocab_size() < 256) {
    Refuse("model.vocab_size", absl::StrCat(model.vocab_size()), "at least 256 with tokenizer: bytes",
           "a byte has 256 values: use 256");
  }
}

void ModelChecker::CheckExperts(const v1::Model& model, bool sparse) {
  if (!sparse) {
    if (model.has_moe() && IsWritten("model.model_type")) {
      Refuse("model.model_type", model.model_type(), "mixtral, qwen3_moe, deepseek_v3 with a block moe",
             "use one of these, or omit the block");
    } else if (model.has_moe()) {
      Refuse("model.moe", ValueText(FindValue(spec(), "model.moe")),
             absl::StrCat("nothing with model_type ", model.model_type(), Origin("model.model_type")),
             "omit the block, or give model_type: mixtral, qwen3_moe, or deepseek_v3");
    }
    return;
  }
  const v1::MixtureOfExperts& moe = model.moe();
  if (!Has("model.moe.num_experts")) {
    Refuse("model.moe.num_experts", "say how many experts a sparse layer has");
  }
  if (!Has("model.moe.num_experts_per_tok")) {
    Refuse("model.moe.num_experts_per_tok", "say how many experts each token uses");
  }
  if (Usable({"model.moe.num_experts", "model.moe.num_experts_per_tok"}) &&
      moe.num_experts_per_tok() > moe.num_experts()) {
    Refuse("model.moe.num_experts_per_tok", absl::StrCat(moe.num_experts_per_tok()),
           absl::StrCat("1 to num_experts ", moe.num_experts(), Origin("model.moe.num_experts")),
           "use a smaller number");
  }
  const bool mixtral = model.model_type() == "mixtral";
  if (mixtral && Usable({"model.moe.norm_topk_prob"}) && !moe.norm_topk_prob()) {
    Refuse("model.moe.norm_topk_prob", "false", "true with model_type mixtral",
           "omit the key, or use model_type: qwen3_moe");
  }
  if (Usable({"model.moe.num_experts_per_tok", "model.moe.norm_topk_prob"}) &&
      moe.num_experts_per_tok() == 1 && moe.norm_topk_prob()) {
    Refuse("model.moe.num_experts_per_tok", "1",
           absl::StrCat("2 or more with norm_topk_prob: true", Origin("model.moe.norm_topk_prob")),
           absl::StrCat("divided by their sum, the probability of one expert is always 1, and the router "
                        "would never learn: use more",
                        mixtral ? "" : ", or norm_topk_prob: false"));
  }
  if (mixtral && Usable({"model.moe.moe_intermediate_size", "model.intermediate_size"}) &&
      moe.moe_intermediate_size() != model.intermediate_size()) {
    Refuse("model.moe.moe_intermediate_size", absl::StrCat(moe.moe_intermediate_size()),
           absl::StrCat("intermediate_size ", model.intermediate_size(), " with model_type mixtral"),
           "omit the key, or use model_type: qwen3_moe");
  }
  if (model.model_type() == kDeepseek) {
    CheckDeepseekExperts(model);
  } else {
    RefuseDeepseekFields(model);
  }
  const int64_t step = moe.decoder_sparse_step();
  if (mixtral && Usable({"model.moe.decoder_sparse_step"}) && step != 1) {
    Refuse("model.moe.decoder_sparse_step", absl::StrCat(step), "1 with model_type mixtral",
           "omit the key, or use model_type: qwen3_moe");
  } else if (Usable({"model.moe.decoder_sparse_step", "model.num_hidden_layers"}) &&
             step > model.num_hidden_layers()) {
    Refuse(
        "model.moe.decoder_sparse_step", absl::StrCat(step),
        absl::StrCat("1 to num_hidden_layers ", model.num_hidden_layers(), Origin("model.num_hidden_layers")),
        "no layer is sparse: use a smaller number, or model_type: llama");
  }
  if (spec().resources().device() == v1::DEVICE_CUDA) {
    Refuse("resources.device", "cuda", "cpu with a mixture of experts",
           "not built yet: experts on GPUs; use cpu, or a dense model");
  }
}

void ModelChecker::CheckHeads(const v1::Model& model) {
  const int64_t heads = model.num_attention_heads();
  const int64_t shared = model.num_key_value_heads();
  if (Usable({"model.num_attention_heads", "model.num_key_value_heads"}) && heads % shared != 0 &&
      !IsWritten("model.num_key_value_heads")) {
    Refuse("model.num_attention_heads", absl::StrCat(heads),
           absl::StrCat("a multiple of num_key_value_heads ", shared, Origin("model.num_key_value_heads")),
           absl::StrCat(NearestMultiples(heads, shared, 1024), "; or give num_key_value_heads"));
  } else if (Usable({"model.num_attention_heads", "model.num_key_value_heads"}) && heads % shared != 0) {
    std::vector<int64_t> divisors;
    for (int64_t divisor = 1; divisor <= heads; ++divisor) {
      if (heads % divisor == 0) {
        divisors.push_back(divisor);
      }
    }
    Refuse("model.num_key_value_heads", absl::StrCat(shared),
           absl::StrCat("a divisor of num_attention_heads ", heads, Origin("model.num_attention_heads")),
           absl::StrCat("use one of ", absl::StrJoin(divisors, ", ")));
  }
  if (Usable({"model.hidden_size", "model.num_attention_heads"}) && IsOk({"model.head_dim"}) &&
      !model.has_head_dim()) {
    if (IsWritten("model.num_attention_heads")) {
      Refuse("model.num_attention_heads", absl::StrCat(heads),
             absl::StrCat("a divisor of hidden_size ", model.hidden_size(), Origin("model.hidden_size")),
             "use one, or give head_dim");
    } else {
      Refuse("model.hidden_size", absl::StrCat(model.hidden_size()),
             absl::StrCat("a multiple of num_attention_heads ", heads, Origin("model.num_attention_heads")),
             absl::StrCat(NearestMultiples(model.hidden_size(), heads, 1 << 20), "; or give head_dim"));
    }
  }
  if (!Usable({"model.head_dim"})) {
    return;
  }
  const int64_t head_dim = model.head_dim();
  if (IsWritten("model.head_dim")) {
    if (head_dim % 2 != 0) {
      Refuse("model.head_dim", absl::StrCat(head_dim), "an even number from 2 to 4096",
             absl::StrCat("rotary embedding turns pairs of elements: use ", head_dim + 1));
    }
  } else if (Usable({"model.hidden_size", "model.num_attention_heads"}) &&
             (head_dim % 2 != 0 || head_dim > 4096)) {
    const bool is_heads = IsWritten("model.num_attention_heads");
    Refuse(is_heads ? "model.num_attention_heads" : "model.hidden_size",
           absl::StrCat(is_heads ? heads : model.hidden_size()), "heads of an even size from 2 to 4096",
           absl::StrCat("hidden_size ", model.hidden_size(), Origin("model.hidden_size"), " / ", heads,
                        " heads", Origin("model.num_attention_heads"), " is ", head_dim,
                        ": use another number, or give head_dim"));
  }
}

void ModelChecker::CheckLatentAttention(const v1::Model& model) {
  for (const char* path : {"model.latent_attention.kv_lora_rank", "model.latent_attention.qk_nope_head_dim",
                           "model.latent_attention.qk_rope_head_dim", "model.latent_attention.v_head_dim"}) {
    if (!Has(path)) {
      Refuse(path, "say it of model_type deepseek_v3");
    }
  }
  const v1::LatentAttention& latent = model.latent_attention();
  for (const char* path :
       {"model.latent_attention.qk_nope_head_dim", "model.latent_attention.qk_rope_head_dim"}) {
    const int64_t dims = path == std::string_view("model.latent_attention.qk_nope_head_dim")
                             ? latent.qk_nope_head_dim()
                             : latent.qk_rope_head_dim();
    if (Usable({path}) && dims % 2 != 0) {
      Refuse(path, absl::StrCat(dims), "an even number", absl::StrCat("use ", dims + 1));
    }
  }
  if (Usable({"model.num_attention_heads", "model.num_key_value_heads"}) &&
      model.num_key_value_heads() != model.num_attention_heads()) {
    Refuse("model.num_key_value_heads", absl::StrCat(model.num_key_value_heads()),
           absl::StrCat("num_attention_heads ", model.num_attention_heads(),
                        Origin("model.num_attention_heads"), " with model_type deepseek_v3"),
           "every head has keys and values of its own there: omit the key");
  }
  if (!Usable({"model.latent_attention.qk_nope_head_dim", "model.latent_attention.qk_rope_head_dim"})) {
    return;
  }
  const int64_t head_dim = latent.qk_nope_head_dim() + latent.qk_rope_head_dim();
  if (Usable({"model.head_dim"}) && model.head_dim() != head_dim) {
    Refuse("model.head_dim", absl::StrCat(model.head_dim()),
           absl::StrCat("qk_nope_head_dim + qk_rope_head_dim, which is ", head_dim), "omit the key");
  }
  if (Usable({"model.latent_attention.v_head_dim"}) && latent.v_head_dim() > head_dim) {
    Refuse("model.latent_attention.v_head_dim", absl::StrCat(latent.v_head_dim()),
           absl::StrCat("1 to qk_nope_head_dim + qk_rope_head_dim, which is ", head_dim),
           "use a smaller number");
  }
}

void ModelChecker::CheckDeepseekExperts(const v1::Model& model) {
  const v1::MixtureOfExperts& moe = model.moe();
  if (Usable({"model.moe.first_k_dense_replace", "model.num_hidden_layers"}) &&
      moe.first_k_dense_replace() >= model.num_hidden_layers()) {
    Refuse("model.moe.first_k_dense_replace", absl::StrCat(moe.first_k_dense_replace()),
           absl::StrCat("less than num_hidden_layers ", model.num_hidden_layers(),
                        Origin("model.num_hidden_layers")),
           "no layer is sparse: use a smaller number");
  }
  if (Usable({"model.moe.decoder_sparse_step"}) && moe.decoder_sparse_step() != 1) {
    Refuse("model.moe.decoder_sparse_step", absl::StrCat(moe.decoder_sparse_step()),
           "1 with model_type deepseek_v3", "omit the key, or use first_k_dense_replace");
  }
  const bool grouped = Usable({"model.moe.n_group", "model.moe.topk_group"});
  if (Usable({"model.moe.n_group", "model.moe.num_experts"}) && moe.num_experts() % moe.n_group() != 0) {
    Refuse("model.moe.n_group", absl::StrCat(moe.n_group()),
           absl::StrCat("a divisor of num_experts ", moe.num_experts(), Origin("model.moe.num_experts")),
           "groups are of one size: use another number");
  } else if (grouped && moe.topk_group() > moe.n_group()) {
    Refuse("model.moe.topk_group", absl::StrCat(moe.topk_group()),
           absl::StrCat("1 to n_group ", moe.n_group(), Origin("model.moe.n_group")), "use a smaller number");
  } else if (grouped && moe.topk_group() < moe.n_group() && Usable({"model.moe.num_experts_per_tok"}) &&
             moe.num_experts_per_tok() != 2 * moe.topk_group()) {
    Refuse("model.moe.topk_group", absl::StrCat(moe.topk_group()),
           absl::StrCat("half of num_experts_per_tok ", moe.num_experts_per_tok(),
                        Origin("model.moe.num_experts_per_tok"), ", or n_group ", moe.n_group(),
                        Origin("model.moe.n_group")),
           "groups are compared by their two best experts: use another number");
  } else if (grouped && moe.topk_group() < moe.n_group() && Usable({"model.moe.num_experts"}) &&
             moe.num_experts() / moe.n_group() < 2) {
    Refuse("model.moe.n_group", absl::StrCat(moe.n_group()),
           absl::StrCat("at most half of num_experts ", moe.num_experts(), Origin("model.moe.num_experts")),
           "groups are compared by their two best experts: use fewer");
  }
}

void ModelChecker::RefuseDeepseekFields(const v1::Model& model) {
  for (const char* path : {"model.moe.first_k_dense_replace", "model.moe.n_shared_experts",
                           "model.moe.n_group", "model.moe.topk_group", "model.moe.routed_scaling_factor"}) {
    if (IsWritten(path)) {
      Refuse(path, ValueText(FindValue(spec(), path)),
             absl::StrCat("nothing with model_type ", model.model_type(), Origin("model.model_type")),
             "omit the key, or use model_type: deepseek_v3");
    }
  }
}

}  // namespace tandem::jobspec
