// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"
#include "jobspec/data_texts.h"
#include "model/config.h"
#include "model/unit_parameters.h"
#include "parallel/group_options.h"
#include "parallel/job_groups.h"
#include "parallel/topology.h"
#include "plan/learning_rate.h"
#include "schedules/build/program_builder.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// What the ranks of a job will run, derived from the resolved spec alone. Only here does a job spec become
// plain structs. `tandem plan`, the controller and the trainer call the same function, so the plan that a
// user sees is the one that runs.

struct OptimizerConfig {
  LearningRateSchedule schedule;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  std::vector<std::string> no_weight_decay;  // patterns of the names of parameters without weight decay
  double clip_grad_norm = 0;                 // 0: none
};

struct DataConfig {
  std::vector<jobspec::DataText> train;       // at least one
  std::vector<jobspec::DataText> validation;  // if empty, a fraction of each training text
  double validation_fraction = 0;
  bool shuffles = true;                    // whether the sequences of an epoch are shuffled
  bool counts_first_tokens = true;         // whether the first tokens of documents count as targets
  std::optional<int64_t> end_of_document;  // a token id; for jobs whose batch packs documents
};

struct CheckpointConfig {
  std::string directory;  // empty: no checkpoints
  int64_t every_steps = 0;
  int keep = 0;
  std::string resume;      // "", "newest", "none" or a path
  std::string start_from;  // folder of weights; if empty, the seed makes them
};

struct TrainConfig {
  std::string name;
  int64_t steps = 0;
  uint64_t seed = 0;
  int microbatches_per_rank = 0;  // rounds in one step
  int64_t validate_every_steps = 0;
  int64_t validation_batches = 0;  // microbatches in a validation of one text, over all ranks
  int64_t validation_rounds = 0;   // rounds of a validation; it may take several `validate` runs
  bool parameter_norms = false;
  std::vector<std::string> recompute;      // words of training.recompute (recomputation.h); empty: none
  std::vector<std::string> replayed;       // words of graphs.scope (graph_segments.h)
  std::vector<std::string> keep_gathered;  // names of units, or "all"
  bool stop_on_nonfinite = false;          // stop at a norm that is not finite; if false, only skip the step
  bool skips_spikes = false;  // skip steps whose norm is a spike; if false, a spike is only an event
  bool canaries = false;      // bytes in all padding are checked after every step
  OptimizerConfig optimizer;
  DataConfig data;
  CheckpointConfig checkpoint;
};

// Whether the job validates at all.
inline bool Validates(const TrainConfig& train) {
  return train.validate_every_steps > 0 && train.validation_batches > 0;
}

// The undivided model of a job with several stages.
struct WholeModel {
  std::vector<model::UnitParameters> units;
  schedules::Outline outline;
};

struct JobPlan {
  parallel::GridSizes grid;
  parallel::Topology topology;  // that of rank 0, with the sizes of all; TopologyOf has another rank's
  TrainConfig train;
  model::DecoderConfig model;
  v1::Model resolved_model;  // the spec of `model`, for checkpoints
  v1::Training resolved_training;
  v1::Precision resolved_precision;
  model::BatchShape batch;
  model::Precision precision = model::ComputeType::kFp32;
  model::DeviceKind device = model::DeviceKind::kCpu;
  int ranks_per_worker = 0;  // the limit in the field `resources`; 0: no limit
  std::vector<model::UnitParameters> units;
  std::vector<fsdp::ClassLayouts> layouts;  // by unit and class (model/unit_parameters.h)
  schedules::Outline outline;
  std::vector<parallel::Group> groups;  // every process group, in the order of creation
  std::map<std::string, parallel::GroupOptions> group_options;  // by the name of groups that have options
  schedules::Schedule schedule = schedules::Schedule::kSequential;
  bool separate_weights = false;    // as in `options`
  schedules::BuildOptions options;  // the options that `stage` is built with
  schedules::StagePrograms stage;
  // Set if the job has several stages (plan/stages.h). The plan is then that of one stage: it has the units,
  // layouts, outline, options and programs of this stage, and `origin` maps their numbers to those of the
  // whole model. Null: there is one stage.
  std::shared_ptr<const WholeModel> whole;
  schedules::Origin origin;
  std::string program_digest;     // SHA-256 of the texts of all programs
  std::string parameters_digest;  // SHA-256 of the model's Parameters, sorted by name
};

// Requires a spec that jobspec::Validate accepts, with a number for parallelism.fsdp.prefetch
// (prefetch_choice.h). If resources.device is auto, which the controller replaces when it places the job, the
// plan is that of a CPU; a GPU's kernels need other scratch. The programs have passed the check
// (schedules/check/check.h). Throws std::logic_error, with the check's text, if the check refuses them (a bug
// of ours).
JobPlan MakeJobPlan(const v1::JobSpec& resolved);

// Makes the same plan without digests, to compare plans by time and memory. The digest covers the programs'
// texts, which take long to write if there are many instructions.
JobPlan MakeUndigestedPlan(const v1::JobSpec& resolved);

// The units of the model that all stages form together.
const std::vector<model::UnitParameters>& WholeUnits(const JobPlan& plan);
const schedules::Outline& WholeOutline(const JobPlan& plan);

// Selects, from `all` things of the whole model, those of the plan's stage. `own` has the indices of the
// selected things and comes from plan.origin.
template <typename T>
std::vector<T> OfStage(const JobPlan& plan, const std::vector<int>& own, std::vector<T> all) {
  if (plan.whole == nullptr) {
    return all;
  }
  std::vector<T> of_stage;
  for (const int place : own) {
    of_stage.push_back(std::move(all.at(place)));
  }
  return of_stage;
}

// By unit of the plan, the layouts of what `rank`, a rank of the plan's stage, has of the unit. plan.layouts
// are those of the stage's first rank. Ranks that share the experts of a layer have some experts as a whole
// and nothing of the others.
std::vector<fsdp::ClassLayouts> LayoutsOf(const JobPlan& plan, int rank);

// By unit of the plan, the layouts with all experts. They do not depend on how many ranks share experts, and
// therefore checkpoints and reports do not either.
std::vector<fsdp::ClassLayouts> WholeLayouts(const JobPlan& plan);

// A parameter of the whole job.
struct JobParameter {
  std::string name;  // Hugging Face name
  fsdp::Shape shape;
  bool trained = true;
};

// All parameters, including those of every expert, in the order in which reports list the trained ones.
std::vector<JobParameter> Parameters(const JobPlan& plan);
std::vector<JobParameter> TrainedParameters(const JobPlan& plan);

// Indices of the parameters that a rank trains, in the order of its own units and layouts.
std::vector<size_t> TrainedParametersOf(const JobPlan& plan, int rank);

// The rank's share of a step.
parallel::Topology TopologyOf(const JobPlan& plan, int rank);

// The position of `rank` in the mesh that unit `unit` is placed on.
fsdp::UnitMesh MeshOf(const JobPlan& plan, size_t unit, int rank);

// Counts the tokens of all ranks.
int64_t TokensPerStep(const JobPlan& plan);

// Counts the microbatches of all ranks in a step. This is the divisor of all mean gradients, also those of
// experts, because their gradients come from the tokens of all ranks.
double MicrobatchesPerStep(const JobPlan& plan);

// The number of ranks in each group of that name. The plan must have such groups.
int GroupRanks(const JobPlan& plan, const std::string& name);

// The communicators of all programs, each once, in the order of the programs, and in each in the order of
// Program::communicators. All ranks have the same order and create communicators in it, except that clones
// are created last (comm/communicators.h).
std::vector<schedules::CommunicatorUse> CommunicatorUses(const JobPlan& plan);

// The streams that communicate in a group with high priority.
std::set<std::string> HighPriorityStreams(const JobPlan& plan);

// The type of hidden states and layers: "bf16".
std::string ComputeName(const JobPlan& plan);

// All types that the job uses: "bf16, head fp32; gradients between ranks bf16, head fp32".
std::string PrecisionText(const JobPlan& plan);

}  // namespace tandem::plan
