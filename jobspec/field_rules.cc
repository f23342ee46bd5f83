// SPDX-License-Identifier: Apache-2.0
#include "jobspec/field_rules.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/model_types.h"
#include "jobspec/presets.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kBillion = 1'000'000'000;

// Well above the numbers that are 0 in fp32: what is divided by is never 0.
constexpr double kSmallestEpsilon = 1e-30;
// A row of zeros has a gradient with the third power of its root's inverse, which must be finite in fp32.
constexpr double kSmallestNormEpsilon = 1e-24;

constexpr TextRule kTextRules[] = {
    {"api_version", "tandem/v1"},
    {"name", "1 to 63 of a-z, 0-9 and -, neither first nor last a -"},
    {"model.hugging_face", "path of a config.json"},
    {"model.model_type",
     "llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, olmo2, deepseek_v2, deepseek_v3, "
     "granite, hybrid, mamba2, nemotron_h, granitemoehybrid, bamba, qwen3_next"},
    {"model.hybrid_pattern", "a letter a layer: M, G, *, -, E, and groups as [M*-]"},
    {"model.window_layers", "all, or layers and ranges of them joined by commas, as 0-3,8"},
    {"data.train", "absolute path of a file, a folder or a glob"},
    {"data.validation", "absolute path of a file, a folder or a glob"},
    {"data.sources.path", "absolute path of a file, a folder or a glob"},
    {"data.sources.name", "1 to 100 letters, digits and other plain characters, without /"},
    {"data.validation_sets.path", "absolute path of a file, a folder or a glob"},
    {"data.validation_sets.name", "1 to 100 letters, digits and other plain characters, without /"},
    {"data.tokenizer", "auto, bytes"},
    {"training.optimizer.no_weight_decay",
     "none, or names of parameters, in which * is any text, joined by commas"},
    {"training.frozen",
     "none, or units joined by commas: embedding, layers.0 to the last layer, layers.0.experts where it has "
     "them, head"},
    {"training.recompute",
     "off, layer, or of its nodes attention, mlp, mamba and gated_delta one or more, joined by a comma"},
    {"graphs.scope", "none, or parts of a layer joined by commas: attention, router, preprocess, mlp, mamba"},
    {"parallelism.fsdp.keep_gathered",
     "none, all, or units joined by commas: embedding, layers.0 to the last layer, layers.0.experts where it "
     "has them, head"},
    {"parallelism.order", "tp, cp, ep, dp and pp, each at most once, joined by -"},
    {"checkpoint.directory", "absolute path of a folder"},
    {"checkpoint.export.to", "absolute path of a folder"},
    {"checkpoint.start_from",
     "absolute path of the folder of a Hugging Face model, or of one step of a checkpoint"},
    {"checkpoint.resume", "newest, none, or the absolute path of one checkpoint"},
};

constexpr char kNccl[] = "parallelism.nccl";
constexpr char kNetNames[] = "IB, socket";
constexpr bool kAbove = true;  // RangeRule::above_min

// With the rules of every group's options. NCCL clusters at most 8 blocks and has at most 64 channels.
std::vector<RangeRule> WithNccl(std::vector<RangeRule> rules) {
  static std::deque<std::string> paths;  // that the rules point to
  for (const std::string& group : Keys(*v1::NcclGroups::descriptor())) {
    const auto add = [&](const char* key, double min, double max) {
      rules.push_back({paths.emplace_back(JoinPath(JoinPath(kNccl, group), key)).c_str(), min, max});
    };
    add("cga_cluster_size", 0, 8);
    add("min_ctas", 1, 64);
    add("max_ctas", 1, 64);
  }
  return rules;
}

std::string Allowed(const RangeRule& rule) {
  const bool is_double =
      FindField(rule.path)->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE;
  const auto text = [&](double limit) {
    return is_double ? NumberText(limit) : absl::StrCat(static_cast<int64_t>(limit));
  };
  if (rule.above_min || rule.below_max) {
    return absl::StrCat(rule.above_min ? "more than " : "at least ", text(rule.min),
                        rule.below_max ? " and less than " : " and at most ", text(rule.max));
  }
  return absl::StrCat(text(rule.min), " to ", text(rule.max), rule.word == nullptr ? "" : ", or ",
                      rule.word == nullptr ? "" : rule.word);
}

template <typename Rules>
auto* FindRule(const Rules& rules, std::string_view path) {
  for (const auto& rule : rules) {
    if (path == rule.path) {
      return &rule;
    }
  }
  return static_cast<decltype(&*std::begin(rules))>(nullptr);
}

}  // namespace

// Upper limits are far beyond any use; they keep products of sizes within 64 bits and plans within memory.
const std::vector<RangeRule>& RangeRules() {
  static const std::vector<RangeRule> rules = WithNccl({
      {"model.hidden_size", 1, 1 << 20},
      {"model.intermediate_size", 1, 1 << 22},
      {"model.num_hidden_layers", 1, kMostModelLayers},
      {"model.num_attention_heads", 1, 1024},
      {"model.num_key_value_heads", 1, 1024},
      {"model.head_dim", 2, 4096},
      {"model.vocab_size", 2, 1 << 24},
      {"model.max_position_embeddings", 1, 1 << 30},
      {"model.rope_scaling.original_max_position_embeddings", 1, 1 << 30},
      {"model.sliding_window", 1, 1 << 30},
      {"model.moe.num_experts", 1, 1024},
      {"model.moe.num_experts_per_tok", 1, 1024},
      {"model.moe.moe_intermediate_size", 1, 1 << 22},
      {"model.moe.shared_expert_intermediate_size", 0, 1 << 22},
      {"model.moe.decoder_sparse_step", 1, 1024},
      {"model.moe.first_k_dense_replace", 0, 1024},
      {"model.moe.n_shared_experts", 0, 1024},
      {"model.moe.n_group", 1, 1024},
      {"model.moe.topk_group", 1, 1024},
      {"model.mamba.num_heads", 1, 4096},
      {"model.mamba.head_dim", 1, 4096},
      {"model.mamba.state_size", 1, 4096},
      {"model.mamba.n_groups", 1, 4096},
      {"model.mamba.conv_kernel", 1, 8},
      {"model.mamba.chunk_size", 1, 1 << 16},
      {"model.gated_delta_net.num_key_heads", 1, 4096},
      {"model.gated_delta_net.num_value_heads", 1, 4096},
      {"model.gated_delta_net.key_head_dim", 1, 4096},
      {"model.gated_delta_net.value_head_dim", 1, 4096},
      {"model.gated_delta_net.conv_kernel", 1, 8},
      {"model.gated_delta_net.chunk_size", 1, 1 << 16},
      {"model.latent_attention.q_lora_rank", 1, 1 << 20},
      {"model.latent_attention.kv_lora_rank", 1, 1 << 20},
      {"model.latent_attention.qk_nope_head_dim", 0, 4096},
      {"model.latent_attention.qk_rope_head_dim", 2, 512},
      {"model.latent_attention.v_head_dim", 1, 4096},
      {"data.end_of_document", 0, (1 << 24) - 1},
      {"training.steps", 1, kBillion},
      {"training.sequence_length", 1, 1 << 20},
      {"training.micro_batch_size", 1, 1 << 16},
      {"training.global_batch_size", 1, 1 << 24},
      {"training.schedule.warmup_steps", 0, kBillion},
      {"training.schedule.decay_steps", 1, kBillion},
      {"training.validate_every_steps", 0, kBillion},
      {"training.validation_batches", 1, kMillion},
      {"parallelism.ranks", 1, 16384},
      {"parallelism.replicas", 1, 16384},
      {"parallelism.expert", 1, 1024},
      {.path = "parallelism.fsdp.prefetch", .min = 0, .max = 2, .word = "auto"},
      {"resources.ranks_per_worker", 1, 16384},
      {"checkpoint.every_steps", 0, kBillion},
      {"checkpoint.keep", 1, 10000},
      {"checkpoint.export.every_steps", 1, kBillion},
      {"model.rms_norm_eps", kSmallestNormEpsilon, 0.1},
      {"model.rope_theta", 1, 1e12, kAbove},
      {"model.partial_rotary_factor", 0, 1, kAbove},
      {"model.embedding_multiplier", 0, 1e6, kAbove},
      {"model.attention_multiplier", 0, 1e6, kAbove},
      {"model.residual_multiplier", 0, 1e6, kAbove},
      {"model.logits_scaling", 0, 1e6, kAbove},
      {"model.initializer_range", 0, 10, kAbove},
      {"model.rope_scaling.factor", 1, 1e6},
      {"model.rope_scaling.low_freq_factor", 0, 1e6, kAbove},
      {"model.rope_scaling.high_freq_factor", 0, 1e6, kAbove},
      {"model.rope_scaling.beta_fast", 0, 1e6, kAbove},
      {"model.rope_scaling.beta_slow", 0, 1e6, kAbove},
      {"model.rope_scaling.mscale", 0, 1e3, kAbove},
      {"model.rope_scaling.mscale_all_dim", 0, 1e3, kAbove},
      {"model.rope_scaling.attention_factor", 0, 1e3, kAbove},
      {"model.moe.router_aux_loss_coef", 0, 100},
      {"model.moe.router_z_loss_coef", 0, 100},
      {"model.moe.router_bias_update_rate", 0, 1},
      {"model.moe.capacity_factor", 0, 1024},
      {"model.moe.routed_scaling_factor", 0, 1000, kAbove},
      {"data.validation_fraction", 0, 0.5},
      {"data.sources.weight", 1e-6, 1e6},
      {"training.optimizer.learning_rate", 0, 1, kAbove},
      {.path = "training.optimizer.beta1", .min = 0, .max = 1, .below_max = true},
      {.path = "training.optimizer.beta2", .min = 0, .max = 1, .below_max = true},
      {"training.optimizer.epsilon", kSmallestEpsilon, 0.1},
      {"training.optimizer.weight_decay", 0, 1},
      {"training.schedule.min_learning_rate", 0, 1},
      {"training.clip_grad_norm", 0, 1e9},
      {"training.mtp_loss_weight", 0, 100, kAbove},
      {"parallelism.dispatch.rows_at_a_time", 1, 1024},
      {"parallelism.dispatch.most_rows", 0, 1024},
  });
  return rules;
}

const std::vector<RequiredRule>& RequiredRules() {
  static const std::vector<RequiredRule> rules = {
      {"data.train", "name the text to train on, for instance data: {train: /usr/include}"},
      {"data.sources.path", "name the text of this source"},
      {"data.validation_sets.path", "name the text of this set"},
      {"training.steps", "say how many optimizer steps to run"},
      {"training.sequence_length", "say how many tokens a sequence has, for instance 256"},
      {"training.micro_batch_size", "say how many sequences a rank works on at once, for instance 4"},
      {"training.global_batch_size",
       "say how many sequences all ranks together see in a step: a multiple of micro_batch_size × ranks"},
  };
  return rules;
}

const std::vector<AbsentRule>& AbsentRules() {
  static const std::vector<AbsentRule> rules = {
      {"model.num_nextn_predict_layers",
       "not built yet: multi-token prediction by number; omit the key, or use model_type: hybrid and a "
       "pattern with a depth, for instance M*M*/M*"},
      {"resources.memory_bytes",
       "not built yet: placement by memory; omit the key and compare tandem plan with the machine"},
      {"recovery", "not built yet: restarts after a failure; omit the block and submit again with resume"},
      {"priority", "not built yet: priorities between jobs; omit the key"},
  };
  return rules;
}

const std::vector<BuiltRule>& BuiltRules() {
  static const std::vector<std::string> kFloats = {"fp32", "fp64", "bf16"};
  static constexpr char kNoFp8[] = "not built yet: 8 bits; use bf16";
  static const std::vector<BuiltRule> rules = {
      {"parallelism.tensor", {"1"}, "not built yet: tensor parallelism; use 1"},
      {"parallelism.context", {"1"}, "not built yet: context parallelism; use 1"},
      {"parallelism.pipeline", {"1"}, "not built yet: pipeline parallelism; use 1"},
      {"parallelism.expert_tensor", {"1"}, "not built yet: tensor parallelism of experts; use 1"},
      {"precision.compute", kFloats, kNoFp8},
      {"precision.transport", kFloats, kNoFp8},
      {"precision.embedding.compute", kFloats, kNoFp8},
      {"precision.embedding.transport", kFloats, kNoFp8},
      {"precision.head.compute", kFloats, kNoFp8},
      {"precision.head.transport", kFloats, kNoFp8},
      {"checkpoint.export.dtype", {"bf16", "fp32"}, "use one of these"},
  };
  return rules;
}

const AbsentRule* FindAbsentRule(std::string_view path) { return FindRule(AbsentRules(), path); }

const RangeRule* FindWordRule(std::string_view path) {
  const RangeRule* rule = FindRule(RangeRules(), path);
  return rule != nullptr && rule->word != nullptr ? rule : nullptr;
}

std::string AllowedText(std::string_view path) {
  if (path == "model.preset") {
    return absl::StrJoin(PresetNames(), ", ");
  }
  if (path.starts_with(kNccl) && path.ends_with(".net_name")) {
    return kNetNames;
  }
  if (path == "training.seed") {
    return "0 to 18446744073709551615";
  }
  if (path == "parallelism.dispatch.most_rows") {
    return "0, or 1 to 1024";
  }
  if (FindAbsentRule(path) != nullptr) {
    return "";
  }
  const std::string of_rule = WithoutIndices(path);
  if (const auto* rule = FindRule(kTextRules, of_rule)) {
    return rule->allowed;
  }
  if (const auto* rule = FindRule(BuiltRules(), of_rule)) {
    return absl::StrJoin(rule->built, ", ");
  }
  if (const auto* rule = FindRule(RangeRules(), of_rule)) {
    return Allowed(*rule);
  }
  const google::protobuf::FieldDescriptor* field = FindField(path);
  if (field == nullptr) {
    return "";
  }
  if (field->is_repeated() && !path.ends_with(']')) {
    return absl::StrCat("a list of 1 to ", kMostListEntries, " blocks with the keys ",
                        absl::StrJoin(Keys(*field->message_type()), ", "));
  }
  if (field->message_type() != nullptr) {
    return absl::StrCat("a block with the keys ", absl::StrJoin(Keys(*field->message_type()), ", "));
  }
  if (field->enum_type() != nullptr) {
    return absl::StrJoin(EnumTexts(*field->enum_type()), ", ");
  }
  return field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL ? "true, false" : "text";
}

bool HasReplicas(v1::Strategy strategy) {
  return strategy == v1::STRATEGY_HSDP || strategy == v1::STRATEGY_HFSDP;
}

}  // namespace tandem::jobspec
