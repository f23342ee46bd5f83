#include "plan/job_plan.h"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "fsdp/buffer_bytes.h"
#include "model/decoder_outline.h"
#include "parallel/process_groups.h"
#include "schedules/check/check.h"
#include "schedules/program/text.h"
#include "schedules_v1/job_checker.h"
#include "schedules_v1/program_builder.h"
#include "schedules_v1/text.h"

namespace tandem::plan {
namespace {

model::DecoderConfig Model(const v1::Model& spec) {
  return {
      .hidden_size = spec.hidden_size(),
      .intermediate_size = spec.intermediate_size(),
      .num_hidden_layers = spec.num_hidden_layers(),
      .num_attention_heads = spec.num_attention_heads(),
      .num_key_value_heads = spec.num_key_value_heads(),
      .head_dim = spec.head_dim(),
      .vocab_size = spec.vocab_size(),
      .rms_norm_eps = spec.rms_norm_eps(),
      .rope_theta = spec.rope_theta(),
      .tie_word_embeddings = spec.tie_word_embeddings(),
      .initializer_range = spec.initializer_range(),
  };
}

// A value that Validate lets through and that this function does not know is a bug, never a default.
model::ComputeType Compute(v1::ComputeType type) {
  switch (type) {
    case v1::COMPUTE_TYPE_FP32:
      return model::ComputeType::kFp32;
    case v1::COMPUTE_TYPE_FP64:
      return model::ComputeType::kFp64;
    default:
      throw std::logic_error(absl::StrCat("precision.compute: no plan for ", v1::ComputeType_Name(type)));
  }
}

Decay DecayOf(v1::Decay decay) {
  switch (decay) {
    case v1::DECAY_CONSTANT:
      return Decay::kConstant;
    case v1::DECAY_COSINE:
      return Decay::kCosine;
    default:
      throw std::logic_error(absl::StrCat("training.schedule.decay: no plan for ", v1::Decay_Name(decay)));
  }
}

OptimizerConfig Optimizer(const v1::Training& spec) {
  return {
      .learning_rate = spec.optimizer().learning_rate(),
      .beta1 = spec.optimizer().beta1(),
      .beta2 = spec.optimizer().beta2(),
      .epsilon = spec.optimizer().epsilon(),
      .weight_decay = spec.optimizer().weight_decay(),
      .clip_grad_norm = spec.clip_grad_norm(),
      .warmup_steps = spec.schedule().warmup_steps(),
      .decay = DecayOf(spec.schedule().decay()),
      .min_learning_rate = spec.schedule().min_learning_rate(),
  };
}

TrainConfig Train(const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  const int64_t sequences_of_a_round = training.micro_batch_size() * spec.parallelism().ranks();
  if (sequences_of_a_round < 1 || training.global_batch_size() < 1 ||
      training.global_batch_size() % sequences_of_a_round != 0) {
    throw std::logic_error(absl::StrCat("training.global_batch_size: ", training.global_batch_size(),
                                        " is no multiple of micro_batch_size x ranks = ",
                                        sequences_of_a_round, "; Validate refuses such a spec"));
  }
  return {
      .name = spec.name(),
      .steps = training.steps(),
      .seed = training.seed(),
      .ranks = spec.parallelism().ranks(),
      .microbatches_per_rank = static_cast<int>(training.global_batch_size() / sequences_of_a_round),
      .validate_every_steps = training.validate_every_steps(),
      .validation_batches = training.validation_batches(),
      .validation_rounds = static_cast<int>((training.validation_batches() + spec.parallelism().ranks() - 1) /
                                            spec.parallelism().ranks()),
      .parameter_norms = spec.report().parameter_norms(),
      .optimizer = Optimizer(training),
      .data = {.train = spec.data().train(),
               .validation = spec.data().validation(),
               .validation_fraction = spec.data().validation_fraction()},
      .checkpoint = {.directory = spec.checkpoint().directory(),
                     .every_steps = spec.checkpoint().every_steps(),
                     .keep = spec.checkpoint().keep(),
                     .resume = spec.checkpoint().resume()},
  };
}

std::vector<fsdp::Layout> Layouts(const std::vector<model::UnitParameters>& units, int element_bytes) {
  std::vector<fsdp::Layout> layouts;
  for (const model::UnitParameters& unit : units) {
    std::vector<fsdp::ParameterSpec> items;
    for (const model::Parameter& parameter : unit.parameters) {
      items.push_back({.name = parameter.name, .shape = parameter.shape, .block = parameter.block});
    }
    layouts.push_back(fsdp::MakeLayout(items, element_bytes));
  }
  return layouts;
}

std::string Sha256(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) != 1) {
    throw std::logic_error("SHA-256 is not available");
  }
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

void RequireOk(const absl::Status& status) {
  if (!status.ok()) {
    throw std::logic_error(absl::StrCat("the check refuses the programs of this job: ", status.message()));
  }
}

bool Validates(const TrainConfig& train) {
  return train.validate_every_steps > 0 && train.validation_batches > 0;
}

std::vector<model::UnitLayout> UnitLayouts(const std::vector<fsdp::Layout>& layouts) {
  std::vector<model::UnitLayout> result;
  for (const fsdp::Layout& layout : layouts) {
    model::UnitLayout& unit = result.emplace_back();
    unit.elements = layout.elements;
    for (const auto& parameter : layout.parameters) {
      unit.parameters.push_back({.begin = parameter.range.begin, .end = parameter.range.end});
    }
  }
  return result;
}

std::map<std::string, int> GroupRanks(int world) {
  const absl::StatusOr<std::vector<parallel::Group>> groups = parallel::BuildProcessGroups({.world = world});
  RequireOk(groups.status());
  std::map<std::string, int> ranks;
  for (const parallel::Group& group : *groups) {
    ranks[group.name] = static_cast<int>(group.ranks.size());
  }
  return ranks;
}

schedules::BuildOptions OptionsOf(const v1::Fsdp& fsdp, const JobPlan& plan) {
  const absl::StatusOr<schedules::Strategy> strategy = schedules::StrategyOf("zero3");
  RequireOk(strategy.status());
  const int ranks = plan.train.ranks;
  schedules::BuildOptions options{
      .num_microbatches = plan.train.microbatches_per_rank,
      .num_validation_microbatches = Validates(plan.train) ? plan.train.validation_rounds : 0,
      .strategy = *strategy,
      .expert_strategy = *strategy,
      .dense = {.inner = ranks},
      .expert = {.inner = ranks},
      .rings = {.inputs_bytes = fsdp::InputsBytes(), .outcome_bytes = fsdp::OutcomeBytes(ranks)},
      .parameter_norms = plan.train.parameter_norms,
      .prefetch = fsdp.prefetch(),
  };
  for (const fsdp::Layout& layout : plan.layouts) {
    const fsdp::UnitBufferBytes bytes = fsdp::BufferBytesOf(layout, ranks, model::ElementBytes(plan.compute));
    const int64_t shard = fsdp::ShardElements(layout, ranks);
    options.units.push_back({.shard_elements = shard,
                             .outer_shard_elements = shard,
                             .norm_terms_bytes = bytes.norm_terms,
                             .update_norms_bytes = bytes.update_norms,
                             .optimizer_scratch_bytes = bytes.optimizer_scratch});
  }
  return options;
}

void BuildStage(const v1::Fsdp& fsdp, JobPlan& plan) {
  plan.outline = model::DecoderOutline(plan.model, plan.batch, plan.compute, UnitLayouts(plan.layouts));
  plan.group_ranks = GroupRanks(plan.train.ranks);
  plan.options = OptionsOf(fsdp, plan);
  absl::StatusOr<schedules::StagePrograms> stage = schedules::BuildStage(plan.outline, plan.options);
  RequireOk(stage.status());
  plan.stage = *std::move(stage);
  RequireOk(schedules::CheckStage(plan.outline, plan.options, plan.stage));
}

void BuildPrograms(int prefetch, JobPlan& plan) {
  schedules_v1::FsdpOptions options{.prefetch = prefetch};
  for (const fsdp::Layout& layout : plan.layouts) {
    const int64_t bytes =
        fsdp::GatheredElements(layout, plan.train.ranks) * model::ElementBytes(plan.compute);
    options.unit_parameter_slot_bytes.push_back(bytes);
    options.unit_gradient_slot_bytes.push_back(bytes);
  }
  const int rounds = plan.train.microbatches_per_rank;
  plan.train_program = schedules_v1::BuildTrainProgram(plan.outline_v1, options, rounds);
  if (Validates(plan.train)) {
    plan.validate_program =
        schedules_v1::BuildValidateProgram(plan.outline_v1, options, plan.train.validation_rounds);
    schedules_v1::ShareSlots(plan.train_program, plan.validate_program);
  }
  const schedules_v1::Program snapshot = schedules_v1::BuildSnapshotProgram();
  RequireOk(schedules_v1::CheckJob(
      plan.outline_v1,
      {.train = &plan.train_program,
       .validate = plan.validate_program.instructions.empty() ? nullptr : &plan.validate_program,
       .snapshot = &snapshot}));
}

}  // namespace

int64_t TokensPerStep(const JobPlan& plan) {
  return plan.batch.sequences * plan.batch.sequence_length * plan.train.microbatches_per_rank *
         plan.train.ranks;
}

double ContributionsPerStep(const JobPlan& plan) {
  return static_cast<double>(plan.train.microbatches_per_rank) * plan.train.ranks;
}

std::vector<schedules::CommunicatorUse> CommunicatorUses(const JobPlan& plan) {
  std::vector<schedules::CommunicatorUse> uses;
  for (const schedules::Program* program : plan.stage.All()) {
    for (const schedules::CommunicatorUse& use : program->communicators) {
      const bool known = std::any_of(uses.begin(), uses.end(), [&](const schedules::CommunicatorUse& other) {
        return other.group == use.group && other.purpose == use.purpose;
      });
      if (!known) {
        uses.push_back(use);
      }
    }
  }
  return uses;
}

std::string ComputeName(model::ComputeType type) {
  return type == model::ComputeType::kFp64 ? "fp64" : "fp32";
}

JobPlan MakeJobPlan(const v1::JobSpec& resolved) {
  JobPlan plan;
  plan.train = Train(resolved);
  plan.model = Model(resolved.model());
  plan.batch = {.sequences = resolved.training().micro_batch_size(),
                .sequence_length = resolved.training().sequence_length()};
  plan.compute = Compute(resolved.precision().compute());
  plan.units = model::DecoderUnits(plan.model);
  plan.layouts = Layouts(plan.units, model::ElementBytes(plan.compute));
  std::vector<int64_t> elements;
  for (const fsdp::Layout& layout : plan.layouts) {
    elements.push_back(layout.elements);
  }
  plan.outline_v1 = model::DecoderOutline(plan.model, plan.batch, plan.compute, elements);
  BuildPrograms(resolved.parallelism().fsdp().prefetch(), plan);
  BuildStage(resolved.parallelism().fsdp(), plan);
  std::string texts = schedules_v1::ToText(plan.train_program, plan.outline_v1);
  if (!plan.validate_program.instructions.empty()) {
    texts += schedules_v1::ToText(plan.validate_program, plan.outline_v1);
  }
  for (const schedules::Program* program : plan.stage.All()) {
    texts += schedules::ToText(*program, plan.outline);
  }
  plan.program_digest = Sha256(texts);
  plan.layout_digest = fsdp::LayoutDigest(plan.layouts);
  return plan;
}

}  // namespace tandem::plan
