// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/job.h"

#include <google/protobuf/text_format.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/jobspec.h"
#include "model/unit_parameters.h"
#include "plan/build_stage.h"
#include "tandem/v1/job.pb.h"

namespace tandem::parity {

namespace {

// Trainable parameters that take no part in any step: zeros are their gradient.
void AddUnusedUnit(plan::JobPlan& plan) {
  const model::Parameter parameter{.name = "unused.weight", .shape = {5, 31}};
  const int layer = static_cast<int>(plan.units.size());
  plan.units.push_back({.name = "unused", .layer = layer, .parts = {{"unused"}}, .parameters = {parameter}});
  plan.layouts.push_back({fsdp::MakeLayout({{.name = parameter.name, .shape = parameter.shape}},
                                           model::ElementBytes(plan.precision.hidden()))});
  const fsdp::Layout& layout = plan.layouts.back()[0];
  plan.outline.units.push_back(
      {.name = "unused",
       .layer = layer,
       .classes = {{.precision = plan.outline.units[1].classes[0].precision, .elements = layout.elements}},
       .parts = {{"unused", 0, layout.parameters[0].range.end}}});
  plan::BuildPrograms(plan);
}

// Groups of experts, shared experts, narrow queries, and values that are shorter than keys.
void SetDeepseek(const JobOptions& options, v1::Model& model) {
  v1::MixtureOfExperts& moe = *model.mutable_moe();
  moe.set_moe_intermediate_size(options.expert_inner);
  moe.set_first_k_dense_replace(options.dense_layers);
  moe.set_n_shared_experts(2);
  moe.set_routed_scaling_factor(1.5);
  moe.set_router_bias_update_rate(options.bias_update_rate);
  if (options.num_experts % 4 == 0 && options.num_experts >= 8 && options.experts_per_token == 4) {
    moe.set_n_group(4);
    moe.set_topk_group(2);
  }
  v1::LatentAttention& latent = *model.mutable_latent_attention();
  latent.set_q_lora_rank(12);
  latent.set_kv_lora_rank(10);
  latent.set_qk_nope_head_dim(6);
  latent.set_qk_rope_head_dim(4);
  latent.set_v_head_dim(8);
  model.set_num_key_value_heads(options.heads);
}

// Mixers have two groups of heads of five channels, delta nets two key heads; chunks divide no sequence.
void SetPattern(const JobOptions& options, v1::Model& model) {
  model.set_hybrid_pattern(options.pattern);
  const auto has = [&](char letter) { return options.pattern.find(letter) != std::string::npos; };
  if (has('-')) {
    model.set_intermediate_size(options.inner);
  }
  if (has('*')) {
    model.set_num_attention_heads(options.heads);
    model.set_num_key_value_heads(options.kv_heads);
  }
  if (has('M')) {
    v1::Mamba& mamba = *model.mutable_mamba();
    mamba.set_num_heads(4);
    mamba.set_head_dim(5);
    mamba.set_state_size(6);
    mamba.set_n_groups(2);
    mamba.set_chunk_size(3);
  }
  if (options.model_type == "granitemoehybrid") {
    model.mutable_mamba()->set_head_dim(8);  // its mixers are twice as wide as the model
    model.set_embedding_multiplier(3);
    model.set_attention_multiplier(0.4);
    model.set_residual_multiplier(0.6);
    model.set_logits_scaling(2.5);
  }
  if (has('G')) {
    v1::GatedDeltaNet& delta = *model.mutable_gated_delta_net();
    delta.set_num_key_heads(2);
    delta.set_num_value_heads(4);
    delta.set_key_head_dim(5);
    delta.set_value_head_dim(6);
    delta.set_chunk_size(3);
  }
}

}  // namespace

JobOptions SparseJob() {
  return {.hidden = 16,
          .inner = 24,
          .heads = 2,
          .kv_heads = 1,
          .sequence_length = 8,
          .model_type = "qwen3_moe",
          .num_experts = 8,
          .expert_inner = 12};
}

int ReplicasOf(const std::string& strategy) { return strategy[0] == 'h' ? 2 : 1; }

std::string AllParts(const JobOptions& options) {
  const auto has = [&](char letter) { return absl::StrContains(options.pattern, letter); };
  const bool any = options.pattern.empty();
  const bool sparse = options.num_experts > 0;
  const bool dense = !sparse || (options.model_type == "qwen3_moe" && options.sparse_step > 1) ||
                     (options.model_type == "deepseek_v3" && options.dense_layers > 0);
  std::vector<std::string> parts;
  const auto add = [&](bool is_there, const char* part) {
    if (is_there) {
      parts.emplace_back(part);
    }
  };
  add(any || has('*'), "attention");
  add(any ? dense : has('-'), "mlp");
  add(has('M') || has('G'), "mamba");
  add(sparse, "router");
  add(sparse && options.expert_parallel > 1, "preprocess");
  return absl::StrJoin(parts, ",");
}

plan::JobPlan MakeJob(const JobOptions& options) {
  v1::JobSpec spec;
  spec.set_name("parity");
  v1::Model& model = *spec.mutable_model();
  model.set_hidden_size(options.hidden);
  if (options.pattern.empty()) {
    model.set_intermediate_size(options.inner);
    model.set_num_hidden_layers(options.layers);
    model.set_num_attention_heads(options.heads);
    model.set_num_key_value_heads(options.kv_heads);
  } else {
    SetPattern(options, model);
  }
  model.set_vocab_size(256);
  model.set_tie_word_embeddings(options.tied);
  model.set_model_type(options.model_type);
  if (options.has_biases) {
    model.set_attention_bias(v1::ATTENTION_BIAS_ALL);
  }
  if (options.sliding_window > 0) {
    model.set_sliding_window(options.sliding_window);
    model.set_window_layers(options.window_layers);
  }
  if (options.num_experts > 0) {
    v1::MixtureOfExperts& moe = *model.mutable_moe();
    moe.set_num_experts(options.num_experts);
    moe.set_num_experts_per_tok(options.experts_per_token);
    if (options.model_type == "qwen3_next") {
      moe.set_shared_expert_intermediate_size(options.expert_inner + 4);
    }
    if (options.model_type == "qwen3_moe" || !options.pattern.empty()) {
      moe.set_moe_intermediate_size(options.expert_inner);
      moe.set_norm_topk_prob(false);
      moe.set_decoder_sparse_step(options.sparse_step);
    }
    if (options.model_type == "granitemoehybrid") {
      moe.clear_norm_topk_prob();  // it follows: they are normalised
      moe.set_shared_expert_intermediate_size(20);
    }
    if (options.model_type.starts_with("deepseek")) {
      SetDeepseek(options, model);
    }
    moe.set_capacity_factor(options.capacity_factor);
    if (options.drop_by_position) {
      moe.set_drop_policy(v1::DROP_POLICY_POSITION);
    }
    moe.set_pad_to_capacity(options.pad_to_capacity);
    moe.set_router_aux_loss_coef(options.router_aux_loss);
    moe.set_router_z_loss_coef(options.router_z_loss);
    v1::BalanceScope scope = v1::BALANCE_SCOPE_UNSPECIFIED;
    if (!v1::BalanceScope_Parse("BALANCE_SCOPE_" + absl::AsciiStrToUpper(options.balance_scope), &scope)) {
      throw std::logic_error("no scope " + options.balance_scope);
    }
    moe.set_router_aux_loss_scope(scope);
  }
  if (options.sources.empty()) {
    spec.mutable_data()->set_train(options.text.empty() ? PARITY_TEXT : options.text);
  }
  for (const JobOptions::Source& source : options.sources) {
    v1::DataSource& named = *spec.mutable_data()->add_sources();
    named.set_path(source.path);
    if (source.weight > 0) {
      named.set_weight(source.weight);
    }
  }
  spec.mutable_data()->set_shuffle(options.shuffle);
  for (const std::string& path : options.validation_sets) {
    spec.mutable_data()->add_validation_sets()->set_path(path);
  }
  if (options.validation_sets.empty()) {
    spec.mutable_data()->set_validation_fraction(0.1);
  }
  spec.mutable_data()->set_count_first_token(options.count_first_token);
  if (options.end_of_document >= 0) {
    spec.mutable_data()->set_documents(v1::DOCUMENTS_PACKED);
    spec.mutable_data()->set_end_of_document(options.end_of_document);
  }
  v1::Training& training = *spec.mutable_training();
  training.set_steps(options.steps);
  training.set_sequence_length(options.sequence_length);
  training.set_micro_batch_size(options.micro_batch_size);
  training.set_global_batch_size(options.micro_batch_size * options.microbatches_per_rank * options.ranks);
  training.set_seed(options.seed);
  training.mutable_optimizer()->set_learning_rate(options.learning_rate);
  training.mutable_schedule()->set_warmup_steps(options.warmup_steps);
  // Without a step behind the warm-up nothing decays: both have the same rates, and one of them is refused.
  const bool decays = options.decays && options.steps > options.warmup_steps && options.steps > 1;
  v1::Decay decay = v1::DECAY_CONSTANT;
  if (decays && !v1::Decay_Parse("DECAY_" + absl::AsciiStrToUpper(options.decay), &decay)) {
    throw std::logic_error("no decay " + options.decay);
  }
  training.mutable_schedule()->set_decay(decay);
  training.set_clip_grad_norm(options.clip);
  if (options.mtp_loss_weight > 0) {
    training.set_mtp_loss_weight(options.mtp_loss_weight);
  }
  if (options.mtp_detach) {
    training.set_mtp_detach(true);
  }
  training.set_frozen(options.frozen);
  spec.mutable_debug()->set_canaries(options.canaries);
  spec.mutable_debug()->set_balanced_routing(options.balanced_routing);
  training.set_recompute(options.recompute);
  spec.mutable_parallelism()->mutable_fsdp()->set_keep_gathered(options.keep_gathered);
  training.set_nonfinite_gradients(options.stop_on_nonfinite ? v1::NONFINITE_GRADIENTS_STOP
                                                             : v1::NONFINITE_GRADIENTS_SKIP);
  training.set_spikes(options.skips_spikes ? v1::SPIKES_SKIP : v1::SPIKES_WARN);
  training.set_validate_every_steps(options.validate_every_steps);
  training.set_validation_batches(options.validation_batches);
  spec.mutable_resources()->set_device(options.on_gpus ? v1::DEVICE_CUDA : v1::DEVICE_CPU);
  spec.mutable_parallelism()->set_ranks(options.ranks);
  spec.mutable_parallelism()->set_expert(options.expert_parallel);
  if (options.expert_parallel > 1) {
    v1::Dispatch& dispatch = *spec.mutable_parallelism()->mutable_dispatch();
    if (!options.chunks.empty()) {
      dispatch.set_chunks(options.chunks == "exact" ? v1::CHUNKS_EXACT : v1::CHUNKS_FIXED);
    }
    if (options.rows_at_a_time > 0) {
      dispatch.set_rows_at_a_time(options.rows_at_a_time);
    }
    dispatch.set_most_rows(options.most_rows);
    dispatch.set_separate_weight_gradients(options.separate_weight_gradients);
  }
  if (options.replicas > 1) {
    spec.mutable_parallelism()->set_replicas(options.replicas);
  }
  v1::Strategy strategy = v1::STRATEGY_UNSPECIFIED;
  if (!v1::Strategy_Parse("STRATEGY_" + absl::AsciiStrToUpper(options.strategy), &strategy)) {
    throw std::logic_error("no strategy " + options.strategy);
  }
  spec.mutable_parallelism()->mutable_fsdp()->set_strategy(strategy);
  spec.mutable_parallelism()->mutable_fsdp()->set_prefetch(options.prefetch);
  if (options.overlap) {
    spec.mutable_parallelism()->set_schedule(v1::SCHEDULE_OVERLAP);
    spec.mutable_parallelism()->mutable_overlap()->set_delay_weight_gradients(options.delay_weight_gradients);
  }
  spec.mutable_precision()->set_compute(options.fp64 ? v1::COMPUTE_TYPE_FP64 : v1::COMPUTE_TYPE_FP32);
  if (!google::protobuf::TextFormat::MergeFromString(options.precision, spec.mutable_precision())) {
    throw std::logic_error("no precision: " + options.precision);
  }
  spec.mutable_graphs()->set_scope(options.graphs);
  spec.mutable_report()->set_parameter_norms(options.norms);
  if (!options.checkpoint_directory.empty()) {
    spec.mutable_checkpoint()->set_directory(options.checkpoint_directory);
    spec.mutable_checkpoint()->set_every_steps(options.checkpoint_every_steps);
    if (!options.resume.empty()) {
      spec.mutable_checkpoint()->set_resume(options.resume);
    }
  }
  const auto violations = jobspec::Validate(spec);
  if (!violations.empty()) {
    throw std::logic_error(jobspec::ToText(violations));
  }
  spec = jobspec::Resolve(spec);
  plan::JobPlan plan = plan::MakeJobPlan(spec);
  if (options.most_logit_bytes > 0) {
    plan.model.most_logit_bytes = options.most_logit_bytes;
    plan::BuildOutline(plan);
    plan::BuildPrograms(plan);
  }
  if (options.unused_unit) {
    AddUnusedUnit(plan);
  }
  return plan;
}

}  // namespace tandem::parity
