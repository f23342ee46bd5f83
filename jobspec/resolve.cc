// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "jobspec/data_texts.h"
#include "jobspec/field_rules.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_types.h"
#include "jobspec/name_list.h"
#include "jobspec/presets.h"
#include "platform/sha256.h"

namespace tandem::jobspec {
namespace {

// Sets a scalar of `message` that the user left out.
#define TANDEM_DEFAULT(message, field, value) \
  do {                                        \
    if (!(message).has_##field()) {           \
      (message).set_##field(value);           \
    }                                         \
  } while (false)

void ResolveMamba(v1::Model& model) {
  v1::Mamba& mamba = *model.mutable_mamba();
  TANDEM_DEFAULT(mamba, head_dim, 64);
  if (mamba.head_dim() > 0 && model.hidden_size() > 0 && 2 * model.hidden_size() % mamba.head_dim() == 0) {
    TANDEM_DEFAULT(mamba, num_heads, 2 * model.hidden_size() / mamba.head_dim());
  }
  TANDEM_DEFAULT(mamba, state_size, 128);
  TANDEM_DEFAULT(mamba, n_groups, 1);
  TANDEM_DEFAULT(mamba, conv_kernel, 4);
  TANDEM_DEFAULT(mamba, chunk_size, 256);
}

void ResolveGatedDelta(v1::Model& model) {
  v1::GatedDeltaNet& delta = *model.mutable_gated_delta_net();
  TANDEM_DEFAULT(delta, key_head_dim, 128);
  TANDEM_DEFAULT(delta, value_head_dim, 128);
  if (delta.key_head_dim() > 0 && model.hidden_size() > 0 &&
      model.hidden_size() % delta.key_head_dim() == 0) {
    TANDEM_DEFAULT(delta, num_key_heads, model.hidden_size() / delta.key_head_dim());
  }
  if (delta.has_num_key_heads()) {
    TANDEM_DEFAULT(delta, num_value_heads, 2 * delta.num_key_heads());
  }
  TANDEM_DEFAULT(delta, conv_kernel, 4);
  TANDEM_DEFAULT(delta, chunk_size, 64);
}

// Layers by a pattern, and the mixers among them.
void ResolvePattern(const ModelType& type, v1::Model& model) {
  const int64_t layers = model.num_hidden_layers();
  if (std::string_view(type.letters).size() == 1 && layers > 0 && layers <= kMostModelLayers) {
    TANDEM_DEFAULT(model, hybrid_pattern, std::string(static_cast<size_t>(layers), type.letters[0]));
  }
  const std::optional<model::LayerPattern> pattern = PatternOf(model);
  if (!pattern.has_value()) {
    return;
  }
  if (const int64_t count = model::CountsOf(*pattern).logical; count > 0) {
    TANDEM_DEFAULT(model, num_hidden_layers, count);
  }
  if (model::Has(*pattern, model::LayerSymbol::kMamba)) {
    ResolveMamba(model);
  }
  if (model::Has(*pattern, model::LayerSymbol::kGatedDelta)) {
    ResolveGatedDelta(model);
  }
}

void ResolveModel(v1::Model& model) {
  if (const v1::Model* preset = FindPreset(model.preset()); preset != nullptr) {
    v1::Model merged = *preset;
    merged.MergeFrom(model);
    model = merged;
  }
  TANDEM_DEFAULT(model, model_type, "llama");
  const ModelType* const type = FindModelType(model.model_type());
  if (type != nullptr) {
    TANDEM_DEFAULT(model, attention_bias, type->attention_bias);
    TANDEM_DEFAULT(model, qk_norm, type->qk_norm);
    TANDEM_DEFAULT(model, norms, type->norms);
    if (type->attention_gate) {
      TANDEM_DEFAULT(model, attention_gate, true);
    }
    if (type->norms_add_one) {
      TANDEM_DEFAULT(model, norms_add_one, true);
    }
    if (type->letters != nullptr) {
      ResolvePattern(*type, model);
    }
  }
  if (model.has_sliding_window()) {
    TANDEM_DEFAULT(model, window_layers, "all");
  }
  if (model.num_hidden_layers() > 0 && model.num_hidden_layers() <= kMostModelLayers) {
    // One text for the same layers, since checkpoints compare it.
    const auto layers = WindowLayersIn(model.window_layers(), model.num_hidden_layers());
    if (model.has_window_layers() && layers.ok()) {
      model.set_window_layers(WindowLayersText(*layers, model.num_hidden_layers()));
    }
  }
  const bool latent_attention = type != nullptr && type->has_latent_attention;
  const int64_t heads = model.num_attention_heads();
  const v1::LatentAttention& latent = model.latent_attention();
  if (latent_attention && latent.qk_rope_head_dim() > 0) {
    TANDEM_DEFAULT(model, head_dim, latent.qk_nope_head_dim() + latent.qk_rope_head_dim());
  }
  if (heads > 0) {
    TANDEM_DEFAULT(model, num_key_value_heads, heads);
    if (model.hidden_size() > 0 && model.hidden_size() % heads == 0) {
      TANDEM_DEFAULT(model, head_dim, model.hidden_size() / heads);
    }
  }
  if (model.has_moe()) {
    v1::MixtureOfExperts& moe = *model.mutable_moe();
    if (model.has_intermediate_size()) {
      TANDEM_DEFAULT(moe, moe_intermediate_size, model.intermediate_size());
    }
    // Softmax scores of deepseek_v2 are never divided by the sum of those chosen.
    TANDEM_DEFAULT(moe, norm_topk_prob, !latent_attention || type->score == v1::ROUTER_SCORE_SIGMOID);
    if (type != nullptr) {
      TANDEM_DEFAULT(moe, score, type->score);
      if (type->may_share_expert) {
        TANDEM_DEFAULT(moe, shared_expert_intermediate_size, 0);
      }
    }
    if (type != nullptr && type->shared_expert_gate) {
      TANDEM_DEFAULT(moe, shared_expert_gate, true);
    }
    TANDEM_DEFAULT(moe, decoder_sparse_step, 1);
    TANDEM_DEFAULT(moe, router_aux_loss_coef, 0);
    TANDEM_DEFAULT(moe, router_aux_loss_scope, v1::BALANCE_SCOPE_MICROBATCH);
    TANDEM_DEFAULT(moe, router_z_loss_coef, 0);
    TANDEM_DEFAULT(moe, capacity_factor, 0);
    TANDEM_DEFAULT(moe, drop_policy, v1::DROP_POLICY_PROBABILITY);
    TANDEM_DEFAULT(moe, pad_to_capacity, false);
    if (latent_attention) {
      TANDEM_DEFAULT(moe, first_k_dense_replace, 0);
      TANDEM_DEFAULT(moe, n_shared_experts, 1);
      TANDEM_DEFAULT(moe, n_group, 1);
      TANDEM_DEFAULT(moe, topk_group, 1);
      TANDEM_DEFAULT(moe, routed_scaling_factor, 1);
      TANDEM_DEFAULT(moe, router_bias_update_rate, 0);
    }
  }
  if (model.has_rope_scaling()) {
    v1::RopeScaling& scaling = *model.mutable_rope_scaling();
    if (scaling.type() == v1::ROPE_TYPE_LLAMA3) {
      TANDEM_DEFAULT(scaling, low_freq_factor, 1);
      TANDEM_DEFAULT(scaling, high_freq_factor, 4);
    } else if (scaling.type() == v1::ROPE_TYPE_YARN) {
      TANDEM_DEFAULT(scaling, beta_fast, 32);
      TANDEM_DEFAULT(scaling, beta_slow, 1);
      TANDEM_DEFAULT(scaling, truncate, true);
    }
  }
  TANDEM_DEFAULT(model, rms_norm_eps, 1e-5);
  const std::optional<model::LayerPattern> pattern = PatternOf(model);
  const bool attends = !pattern.has_value() || model::Has(*pattern, model::LayerSymbol::kAttention);
  if (type != nullptr && type->may_not_rotate && attends) {
    TANDEM_DEFAULT(model, rotary_embedding, true);
  }
  if (type == nullptr ||
      (type->rotates && attends && (!model.has_rotary_embedding() || model.rotary_embedding()))) {
    TANDEM_DEFAULT(model, rope_theta, 10000);
    if (type != nullptr && (type->may_rotate_partly || type->partial_rotary_factor != 1)) {
      TANDEM_DEFAULT(model, partial_rotary_factor, type->partial_rotary_factor);
    }
  }
  if (type != nullptr && type->has_multipliers) {
    TANDEM_DEFAULT(model, embedding_multiplier, 1);
    if (attends && model.head_dim() > 0) {
      TANDEM_DEFAULT(model, attention_multiplier, 1 / std::sqrt(static_cast<double>(model.head_dim())));
    }
    TANDEM_DEFAULT(model, residual_multiplier, 1);
    TANDEM_DEFAULT(model, logits_scaling, 1);
  }
  TANDEM_DEFAULT(model, tie_word_embeddings, false);
  TANDEM_DEFAULT(model, initializer_range, 0.02);
}

// The last part of a path is the name of a text that has none.
template <typename Text>
void ResolveText(Text& text) {
  if (text.has_path()) {
    TANDEM_DEFAULT(text, name, NameOfPath(text.path()));
  }
  TANDEM_DEFAULT(text, format, v1::DATA_FORMAT_AUTO);
}

void ResolveData(v1::Data& data) {
  for (v1::DataSource& source : *data.mutable_sources()) {
    ResolveText(source);
  }
  for (v1::ValidationSet& set : *data.mutable_validation_sets()) {
    ResolveText(set);
  }
  if (!data.has_validation() && data.validation_sets().empty()) {
    TANDEM_DEFAULT(data, validation_fraction, 0.05);
  }
  TANDEM_DEFAULT(data, tokenizer, "auto");
  TANDEM_DEFAULT(data, documents, v1::DOCUMENTS_STREAM);
  TANDEM_DEFAULT(data, count_first_token, true);
  TANDEM_DEFAULT(data, shuffle, true);
}

void ResolveTraining(const v1::Model& model, const v1::Data& data, v1::Training& training) {
  TANDEM_DEFAULT(training, seed, 1);
  v1::Optimizer& optimizer = *training.mutable_optimizer();
  TANDEM_DEFAULT(optimizer, name, v1::OPTIMIZER_NAME_ADAMW);
  TANDEM_DEFAULT(optimizer, learning_rate, 3e-4);
  TANDEM_DEFAULT(optimizer, beta1, 0.9);
  TANDEM_DEFAULT(optimizer, beta2, 0.95);
  TANDEM_DEFAULT(optimizer, epsilon, 1e-8);
  TANDEM_DEFAULT(optimizer, weight_decay, 0.1);
  const ModelType* const type = FindModelType(model.model_type());
  TANDEM_DEFAULT(optimizer, no_weight_decay,
                 type != nullptr && type->letters != nullptr ? kMixersNoWeightDecay : kDefaultNoWeightDecay);
  v1::LearningRateSchedule& schedule = *training.mutable_schedule();
  TANDEM_DEFAULT(schedule, warmup_steps, 0);
  TANDEM_DEFAULT(schedule, decay, v1::DECAY_CONSTANT);
  TANDEM_DEFAULT(schedule, min_learning_rate, 0);
  TANDEM_DEFAULT(training, clip_grad_norm, 1.0);
  const int64_t steps = training.steps();
  const int64_t tenth = steps / 10 + (steps % 10 > 0 ? 1 : 0);
  if (schedule.decay() == v1::DECAY_WSD) {
    if (schedule.warmup_steps() >= 0 && schedule.warmup_steps() < steps) {
      TANDEM_DEFAULT(schedule, decay_steps, std::min(tenth, steps - schedule.warmup_steps()));
    }
    TANDEM_DEFAULT(schedule, decay_shape, v1::DECAY_SHAPE_LINEAR);
  }
  if (training.has_steps()) {
    TANDEM_DEFAULT(training, validate_every_steps, HoldsOut(data) ? std::max<int64_t>(1, tenth) : 0);
  }
  TANDEM_DEFAULT(training, validation_batches, 16);
  TANDEM_DEFAULT(training, nonfinite_gradients, v1::NONFINITE_GRADIENTS_SKIP);
  TANDEM_DEFAULT(training, spikes, v1::SPIKES_WARN);
  TANDEM_DEFAULT(training, frozen, "none");
  TANDEM_DEFAULT(training, recompute, "off");
  if (const std::optional<model::LayerPattern> pattern = PatternOf(model);
      pattern.has_value() && pattern->num_depths > 0) {
    TANDEM_DEFAULT(training, mtp_loss_weight, 0.1);
    TANDEM_DEFAULT(training, mtp_detach, false);
  }
}

// pads: experts to their capacity.
void ResolveParallelism(bool pads, v1::Parallelism& parallelism) {
  TANDEM_DEFAULT(parallelism, ranks, 1);
  TANDEM_DEFAULT(parallelism, tensor, 1);
  TANDEM_DEFAULT(parallelism, context, 1);
  TANDEM_DEFAULT(parallelism, pipeline, 1);
  TANDEM_DEFAULT(parallelism, expert, 1);
  TANDEM_DEFAULT(parallelism, expert_tensor, parallelism.tensor());
  TANDEM_DEFAULT(parallelism, order, "tp-cp-ep-dp-pp");
  v1::Fsdp& fsdp = *parallelism.mutable_fsdp();
  TANDEM_DEFAULT(fsdp, strategy, v1::STRATEGY_ZERO3);
  TANDEM_DEFAULT(parallelism, replicas, HasReplicas(fsdp.strategy()) ? 2 : 1);
  TANDEM_DEFAULT(fsdp, prefetch, 1);
  TANDEM_DEFAULT(fsdp, keep_gathered, "none");
  TANDEM_DEFAULT(parallelism, schedule, v1::SCHEDULE_SEQUENTIAL);
  if (parallelism.schedule() == v1::SCHEDULE_OVERLAP) {
    TANDEM_DEFAULT(*parallelism.mutable_overlap(), delay_weight_gradients, false);
  }
  if (parallelism.expert() > 1) {
    v1::Dispatch& dispatch = *parallelism.mutable_dispatch();
    TANDEM_DEFAULT(dispatch, chunks, v1::CHUNKS_AUTO);
    if (!pads) {  // padded rows are computed all at once
      TANDEM_DEFAULT(dispatch, rows_at_a_time, 1.5);
    }
    TANDEM_DEFAULT(dispatch, most_rows, 0);
    TANDEM_DEFAULT(dispatch, separate_weight_gradients, false);
  }
}

void ResolvePrecision(v1::Precision& precision) {
  TANDEM_DEFAULT(precision, compute, v1::COMPUTE_TYPE_FP32);
  TANDEM_DEFAULT(precision, deterministic, true);
  TANDEM_DEFAULT(precision, transport, precision.compute());
  for (v1::UnitPrecision* unit : {precision.mutable_embedding(), precision.mutable_head()}) {
    TANDEM_DEFAULT(*unit, compute, precision.compute());
    TANDEM_DEFAULT(*unit, transport,
                   unit->compute() == v1::COMPUTE_TYPE_BF16 ? precision.transport() : unit->compute());
  }
}

}  // namespace

v1::JobSpec Resolve(const v1::JobSpec& spec) {
  v1::JobSpec resolved = spec;
  TANDEM_DEFAULT(resolved, api_version, "tandem/v1");
  TANDEM_DEFAULT(resolved, name, "job");
  ResolveModel(*resolved.mutable_model());
  ResolveData(*resolved.mutable_data());
  ResolveTraining(resolved.model(), resolved.data(), *resolved.mutable_training());
  ResolveParallelism(spec.model().moe().pad_to_capacity(), *resolved.mutable_parallelism());
  ResolvePrecision(*resolved.mutable_precision());
  if (resolved.checkpoint().has_directory()) {
    TANDEM_DEFAULT(*resolved.mutable_checkpoint(), every_steps, 0);
    TANDEM_DEFAULT(*resolved.mutable_checkpoint(), keep, 3);
  }
  if (resolved.checkpoint().has_export_()) {
    TANDEM_DEFAULT(*resolved.mutable_checkpoint()->mutable_export_(), dtype, v1::COMPUTE_TYPE_BF16);
  }
  TANDEM_DEFAULT(*resolved.mutable_report(), parameter_norms, true);
  TANDEM_DEFAULT(*resolved.mutable_resources(), device, v1::DEVICE_AUTO);
  TANDEM_DEFAULT(*resolved.mutable_debug(), canaries, false);
  TANDEM_DEFAULT(*resolved.mutable_debug(), balanced_routing, false);
  return resolved;
}

#undef TANDEM_DEFAULT

std::string Digest(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return platform::Sha256Of(bytes);
}

}  // namespace tandem::jobspec
