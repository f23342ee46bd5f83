// SPDX-License-Identifier: Apache-2.0
#include "plan/job_plan.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/decoder_config.h"
#include "jobspec/name_list.h"
#include "model/expert_row_limit.h"
#include "parallel/from_spec.h"
#include "plan/build_stage.h"
#include "plan/recomputation.h"
#include "platform/sha256.h"
#include "proto/names.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

// The meaning of a field's value in a plan. A value that Validate lets through and the table lacks is a bug,
// never a default.
template <typename Meaning, typename Enum>
Meaning MeaningOf(const char* field, Enum value, std::initializer_list<std::pair<Enum, Meaning>> table) {
  for (const auto& [known, meaning] : table) {
    if (known == value) {
      return meaning;
    }
  }
  throw std::logic_error(absl::StrCat(field, ": no plan for ", proto::LowerName(value)));
}

model::ComputeType Compute(v1::ComputeType type) {
  return MeaningOf<model::ComputeType>("precision", type,
                                       {{v1::COMPUTE_TYPE_FP32, model::ComputeType::kFp32},
                                        {v1::COMPUTE_TYPE_FP64, model::ComputeType::kFp64},
                                        {v1::COMPUTE_TYPE_BF16, model::ComputeType::kBf16}});
}

model::Precision PrecisionOf(const v1::Precision& spec) {
  model::Precision precision(Compute(spec.compute()), Compute(spec.transport()));
  const auto add = [&](const char* unit, const v1::UnitPrecision& own) {
    const model::UnitTypes types = model::Precision(Compute(own.compute()), Compute(own.transport())).common;
    if (types != precision.common) {
      precision.units[unit] = types;
    }
  };
  add("embedding", spec.embedding());
  add("head", spec.head());
  precision.repeats = spec.deterministic();
  return precision;
}

// Parameters start at multiples of 128 bytes of their narrowest copy.
int AlignedElementBytes(const model::Precision& precision) {
  int bytes = model::ElementBytes(precision.common.main);
  const auto add = [&](const model::UnitTypes& types) {
    bytes = std::min({bytes, model::ElementBytes(types.compute), model::ElementBytes(types.transport)});
  };
  add(precision.common);
  for (const auto& [unit, types] : precision.units) {
    add(types);
  }
  return bytes;
}

std::optional<int64_t> EndOfDocument(const v1::Data& data) {
  return data.has_end_of_document() ? std::optional(data.end_of_document()) : std::nullopt;
}

schedules::Schedule ScheduleOf(const v1::Parallelism& spec) {
  using schedules::Schedule;
  return MeaningOf<Schedule>(
      "parallelism.schedule", spec.schedule(),
      {{v1::SCHEDULE_SEQUENTIAL, Schedule::kSequential},
       {v1::SCHEDULE_OVERLAP,
        spec.overlap().delay_weight_gradients() ? Schedule::kOverlapped : Schedule::kOverlappedUndelayed}});
}

// Chunks for every token need no sizes; where most of them would stay empty, they cost more than they save.
// Where there is not room for every token, sizes say whether there is enough.
bool HasExactChunks(const v1::Dispatch& spec, const model::MixtureOfExperts& moe) {
  constexpr double kLeastFill = 0.6;
  return MeaningOf<bool>("parallelism.dispatch.chunks", spec.chunks(),
                         {{v1::CHUNKS_AUTO, moe.most_rows > 0 || ExpectedFill(moe) < kLeastFill},
                          {v1::CHUNKS_FIXED, false},
                          {v1::CHUNKS_EXACT, true}});
}

bool StopsOnNonfinite(v1::NonfiniteGradients policy) {
  return MeaningOf<bool>("training.nonfinite_gradients", policy,
                         {{v1::NONFINITE_GRADIENTS_SKIP, false}, {v1::NONFINITE_GRADIENTS_STOP, true}});
}

// A job that an earlier build has stored lacks the field.
bool SkipsSpikes(const v1::Training& spec) {
  return spec.has_spikes() && MeaningOf<bool>("training.spikes", spec.spikes(),
                                              {{v1::SPIKES_WARN, false}, {v1::SPIKES_SKIP, true}});
}

OptimizerConfig Optimizer(const v1::Training& spec) {
  return {
      .schedule = LearningRateScheduleOf(spec),
      .beta1 = spec.optimizer().beta1(),
      .beta2 = spec.optimizer().beta2(),
      .epsilon = spec.optimizer().epsilon(),
      .weight_decay = spec.optimizer().weight_decay(),
      .no_weight_decay = jobspec::NamesIn(spec.optimizer().no_weight_decay(), "none"),
      .clip_grad_norm = spec.clip_grad_norm(),
  };
}

std::vector<std::string> RecomputedNames(const v1::Training& training) {
  std::vector<std::string> names = jobspec::NamesIn(training.recompute(), "off");
  std::erase(names, "head");  // of a job that an earlier build has stored: the head keeps a chunk of logits
  return names;
}

std::vector<std::string> ReplayedParts(const v1::Graphs& graphs) {
  return graphs.has_scope() ? jobspec::NamesIn(graphs.scope(), "none") : std::vector<std::string>();
}

parallel::Topology MakeTopology(const parallel::GridSizes& grid, int rank) {
  const absl::StatusOr<parallel::Topology> topology = parallel::TopologyOf(grid, rank);
  if (!topology.ok()) {
    throw std::logic_error(
        absl::StrCat("the ranks of this job have no topology: ", topology.status().message()));
  }
  return *topology;
}

TrainConfig Train(const v1::JobSpec& spec, const parallel::Topology& topology) {
  const v1::Training& training = spec.training();
  const int64_t sequences_of_a_round = training.micro_batch_size() * topology.MicrobatchesOf(1);
  if (sequences_of_a_round < 1 || training.global_batch_size() < 1 ||
      training.global_batch_size() % sequences_of_a_round != 0) {
    throw std::logic_error(absl::StrCat("training.global_batch_size: ", training.global_batch_size(),
                                        " is not a multiple of micro_batch_size x data ranks = ",
                                        sequences_of_a_round, "; Validate refuses such a spec"));
  }
  return {
      .name = spec.name(),
      .steps = training.steps(),
      .seed = training.seed(),
      .microbatches_per_rank = static_cast<int>(training.global_batch_size() / sequences_of_a_round),
      .validate_every_steps = training.validate_every_steps(),
      .validation_batches = training.validation_batches(),
      .validation_rounds = topology.RoundsOf(training.validation_batches()),
      .parameter_norms = spec.report().parameter_norms(),
      .recompute = RecomputedNames(training),
      .replayed = ReplayedParts(spec.graphs()),
      .keep_gathered = jobspec::NamesIn(spec.parallelism().fsdp().keep_gathered(), "none"),
      .stop_on_nonfinite = StopsOnNonfinite(training.nonfinite_gradients()),
      .skips_spikes = SkipsSpikes(training),
      .canaries = spec.debug().canaries(),
      .optimizer = Optimizer(training),
      .data = {.train = jobspec::TrainingTexts(spec.data()),
               .validation = jobspec::ValidationTexts(spec.data()),
               .validation_fraction = spec.data().validation_fraction(),
               // A job that an earlier build has stored lacks these fields.
               .shuffles = !spec.data().has_shuffle() || spec.data().shuffle(),
               .counts_first_tokens = !spec.data().has_count_first_token() || spec.data().count_first_token(),
               .end_of_document = EndOfDocument(spec.data())},
      .checkpoint = {.directory = spec.checkpoint().directory(),
                     .every_steps = spec.checkpoint().every_steps(),
                     .keep = spec.checkpoint().keep(),
                     .resume = spec.checkpoint().resume(),
                     .start_from = spec.checkpoint().start_from()},
  };
}

bool Decays(const std::string& parameter, const OptimizerConfig& optimizer) {
  return std::none_of(optimizer.no_weight_decay.begin(), optimizer.no_weight_decay.end(),
                      [&](const std::string& pattern) { return jobspec::MatchesName(pattern, parameter); });
}

std::vector<fsdp::ClassLayouts> Layouts(const std::vector<model::UnitParameters>& units,
                                        const model::Precision& precision, const OptimizerConfig& optimizer) {
  std::vector<fsdp::ClassLayouts> layouts;
  for (const model::UnitParameters& unit : units) {
    const model::UnitClasses classes = model::ClassesOf(unit, precision);
    std::vector<std::vector<fsdp::ParameterSpec>> items(classes.types.size());
    for (const model::Parameter& parameter : unit.parameters) {
      items.at(classes.of_part.at(parameter.part))
          .push_back({.name = parameter.name,
                      .shape = parameter.shape,
                      .block = parameter.block,
                      .decays = Decays(parameter.name, optimizer)});
    }
    fsdp::ClassLayouts& of_unit = layouts.emplace_back();
    for (const std::vector<fsdp::ParameterSpec>& of_class : items) {
      of_unit.push_back(fsdp::MakeLayout(of_class, AlignedElementBytes(precision)));
    }
  }
  return layouts;
}

// The model's units with the experts that `config` has.
std::vector<model::UnitParameters> UnitsWith(const JobPlan& plan, const model::DecoderConfig& config) {
  std::vector<model::UnitParameters> units = WholeUnits(plan);
  std::vector<model::UnitParameters> with = model::DecoderUnits(config);
  std::move(with.begin(), with.end(), units.begin());
  return units;
}

}  // namespace

int64_t TokensPerStep(const JobPlan& plan) {
  return plan.batch.sequences * plan.batch.sequence_length *
         plan.topology.MicrobatchesOf(plan.train.microbatches_per_rank);
}

parallel::Topology TopologyOf(const JobPlan& plan, int rank) { return MakeTopology(plan.grid, rank); }

const std::vector<model::UnitParameters>& WholeUnits(const JobPlan& plan) {
  return plan.whole == nullptr ? plan.units : plan.whole->units;
}

const schedules::Outline& WholeOutline(const JobPlan& plan) {
  return plan.whole == nullptr ? plan.outline : plan.whole->outline;
}

std::vector<fsdp::ClassLayouts> LayoutsOf(const JobPlan& plan, int rank) {
  if (plan.model.moe.ranks == 1) {
    return plan.layouts;
  }
  model::DecoderConfig config = plan.model;
  config.moe.rank = TopologyOf(plan, rank).expert.index;
  return Layouts(OfStage(plan, plan.origin.units, UnitsWith(plan, config)), plan.precision,
                 plan.train.optimizer);
}

std::vector<fsdp::ClassLayouts> WholeLayouts(const JobPlan& plan) {
  return Layouts(OfStage(plan, plan.origin.units, UnitsWith(plan, WithAllExperts(plan.model))),
                 plan.precision, plan.train.optimizer);
}

std::vector<JobParameter> Parameters(const JobPlan& plan) {
  std::vector<JobParameter> parameters;
  const schedules::Outline& outline = WholeOutline(plan);
  const std::vector<model::UnitParameters> units = UnitsWith(plan, WithAllExperts(plan.model));
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (const model::Parameter& parameter : units[unit].parameters) {
      parameters.push_back(
          {.name = parameter.name, .shape = parameter.shape, .trained = !outline.units[unit].frozen});
    }
  }
  return parameters;
}

std::vector<JobParameter> TrainedParameters(const JobPlan& plan) {
  std::vector<JobParameter> parameters = Parameters(plan);
  std::erase_if(parameters, [](const JobParameter& parameter) { return !parameter.trained; });
  return parameters;
}

std::vector<size_t> TrainedParametersOf(const JobPlan& plan, int rank) {
  std::map<std::string, size_t> places;
  for (const JobParameter& parameter : TrainedParameters(plan)) {
    places.emplace(parameter.name, places.size());
  }
  std::vector<size_t> own;
  const std::vector<fsdp::ClassLayouts> layouts = LayoutsOf(plan, rank);
  for (size_t unit = 0; unit < layouts.size(); ++unit) {
    for (const fsdp::Layout& layout : layouts[unit]) {
      for (const fsdp::Parameter& parameter : layout.parameters) {
        if (!plan.outline.units[unit].frozen) {
          own.push_back(places.at(parameter.name));
        }
      }
    }
  }
  return own;
}

double MicrobatchesPerStep(const JobPlan& plan) {
  return static_cast<double>(plan.topology.MicrobatchesOf(plan.train.microbatches_per_rank));
}

int GroupRanks(const JobPlan& plan, const std::string& name) {
  for (const parallel::Group& group : plan.groups) {
    if (group.name == name) {
      return static_cast<int>(group.ranks.size());
    }
  }
  throw std::logic_error(absl::StrCat("the plan has no process group ", name));
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

std::set<std::string> HighPriorityStreams(const JobPlan& plan) {
  std::set<std::string> streams;
  for (const schedules::Program* program : plan.stage.All()) {
    for (const schedules::Instruction& instruction : program->instructions) {
      if (instruction.communicator < 0) {
        continue;
      }
      const auto options = plan.group_options.find(program->communicators[instruction.communicator].group);
      if (options != plan.group_options.end() && options->second.high_priority) {
        streams.insert(program->streams[instruction.stream].name);
      }
    }
  }
  return streams;
}

std::string ComputeName(const JobPlan& plan) { return model::ToText(plan.precision.hidden()); }

std::string PrecisionText(const JobPlan& plan) {
  const model::UnitTypes& common = plan.precision.common;
  std::string compute = ComputeName(plan);
  std::string transport = model::ToText(common.transport);
  for (const auto& [unit, types] : plan.precision.units) {
    if (types.compute != common.compute) {
      absl::StrAppend(&compute, ", ", unit, " ", model::ToText(types.compute));
    }
    if (types.transport != common.transport) {
      absl::StrAppend(&transport, ", ", unit, " ", model::ToText(types.transport));
    }
  }
  std::string text = common.compute == common.transport && plan.precision.units.empty()
                         ? compute
                         : absl::StrCat(compute, "; gradients between ranks ", transport);
  if (!plan.precision.repeats && plan.device == model::DeviceKind::kGpu) {
    absl::StrAppend(&text, "; bits need not repeat");
  }
  return text;
}

JobPlan MakeUndigestedPlan(const v1::JobSpec& resolved) {
  JobPlan plan;
  plan.grid = parallel::GridOf(resolved.parallelism());
  plan.topology = MakeTopology(plan.grid, /*rank=*/0);
  plan.train = Train(resolved, plan.topology);
  plan.model = jobspec::ModelConfigOf(resolved.model());
  plan.model.moe.router.deals = resolved.debug().balanced_routing();
  plan.resolved_model = resolved.model();
  plan.resolved_training = resolved.training();
  plan.resolved_precision = resolved.precision();
  plan.model.depths.loss_weight = resolved.training().mtp_loss_weight();
  plan.model.depths.detached = resolved.training().mtp_detach();
  plan.model.frozen_units = jobspec::NamesIn(resolved.training().frozen(), "none");
  plan.batch = {.sequences = resolved.training().micro_batch_size(),
                .sequence_length = resolved.training().sequence_length(),
                .packs_documents = resolved.data().documents() == v1::DOCUMENTS_PACKED,
                .has_targets = !plan.train.data.counts_first_tokens || Validates(plan.train)};
  plan.precision = PrecisionOf(resolved.precision());
  plan.device =
      resolved.resources().device() == v1::DEVICE_CUDA ? model::DeviceKind::kGpu : model::DeviceKind::kCpu;
  plan.ranks_per_worker = resolved.resources().ranks_per_worker();
  plan.model.moe.ranks = plan.topology.expert.size;
  plan.model.moe.data_ranks = plan.topology.counting_ranks();
  if (plan.model.moe.ranks > 1) {
    const v1::Dispatch& dispatch = resolved.parallelism().dispatch();
    plan.model.moe.most_rows = dispatch.most_rows();
    plan.model.moe.exact_chunks = HasExactChunks(dispatch, plan.model.moe);
    if (dispatch.has_rows_at_a_time()) {
      plan.model.moe.rows_at_a_time = dispatch.rows_at_a_time();
    }
  }
  plan.units = model::DecoderUnits(plan.model);
  plan.layouts = Layouts(plan.units, plan.precision, plan.train.optimizer);
  plan.schedule = ScheduleOf(resolved.parallelism());
  plan.separate_weights = resolved.parallelism().dispatch().separate_weight_gradients();
  const v1::Fsdp& fsdp = resolved.parallelism().fsdp();
  if (resolved.parallelism().has_nccl()) {
    plan.group_options =
        parallel::GroupOptionsOf(resolved.parallelism().nccl(), parallel::JobGroups(plan.grid).value());
  }
  if (fsdp.prefetch() < 0) {
    throw std::logic_error(
        "parallelism.fsdp.prefetch: auto is for prefetch_choice.h to replace, when a job is submitted");
  }
  BuildStage(proto::LowerName(fsdp.strategy()), fsdp.prefetch(), plan);
  return plan;
}

JobPlan MakeJobPlan(const v1::JobSpec& resolved) {
  JobPlan plan = MakeUndigestedPlan(resolved);
  std::string texts;
  for (const schedules::Program* program : plan.stage.All()) {
    texts += schedules::ToText(*program, plan.outline);
  }
  plan.program_digest = platform::Sha256Of(texts);
  std::vector<std::string> parameters;
  for (const JobParameter& parameter : Parameters(plan)) {
    parameters.push_back(absl::StrCat(parameter.name, " [", absl::StrJoin(parameter.shape, ", "), "] ",
                                      parameter.trained ? "trained" : "frozen", "\n"));
  }
  std::sort(parameters.begin(), parameters.end());
  plan.parameters_digest = platform::Sha256Of(absl::StrJoin(parameters, ""));
  return plan;
}

}  // namespace tandem::plan
