// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fsdp/layout.h"
#include "fsdp/unit_mesh.h"
#include "jobspec/data_texts.h"
#include "model/config.h"
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

// What the ranks of a job will run, worked out from the resolved spec alone: the one door where a job spec
// becomes plain structs. `tandem plan`, the controller and the trainer call the same function, so what was
// planned is what runs.

struct OptimizerConfig {
  LearningRateSchedule schedule;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  std::vector<std::string> no_weight_decay;  // patterns of the names of parameters that do not decay
  double clip_grad_norm = 0;                 // 0: none
};

struct DataConfig {
  std::vector<jobspec::DataText> train;       // one or more
  std::vector<jobspec::DataText> validation;  // none: a fraction of each training text
  double validation_fraction = 0;
  bool shuffles = true;                    // the sequences of an epoch
  bool counts_first_tokens = true;         // of documents, as targets
  std::optional<int64_t> end_of_document;  // a token id; of jobs whose batch packs documents
};

struct CheckpointConfig {
  std::string directory;  // empty: none
  int64_t every_steps = 0;
  int keep = 0;
  std::string resume;      // "", "newest", "none" or a path
  std::string start_from;  // folder of weights; empty: the seed makes them
};

struct TrainConfig {
  std::string name;
  int64_t steps = 0;
  uint64_t seed = 0;
  int microbatches_per_rank = 0;  // rounds of one step
  int64_t validate_every_steps = 0;
  int64_t validation_batches = 0;  // microbatches of a validation of one text, over all ranks
  int64_t validation_rounds = 0;   // of that; those of a run of `validate` are in the options
  bool parameter_norms = false;
  std::vector<std::string> recompute;      // words of training.recompute (recomputation.h); empty: off
  std::vector<std::string> replayed;       // words of graphs.scope (graph_segments.h)
  std::vector<std::string> keep_gathered;  // units, or "all"
  bool stop_on_nonfinite = false;          // otherwise the step is skipped
  bool skips_spikes = false;               // otherwise there is only an event
  bool canaries = false;                   // in all padding, looked at after every step
  OptimizerConfig optimizer;
  DataConfig data;
  CheckpointConfig checkpoint;
};

// The model of a job of several stages, undivided.
struct WholeModel {
  std::vector<model::UnitParameters> units;
  schedules::Outline outline;
};

struct JobPlan {
  parallel::GridSizes grid;
  parallel::Topology topology;  // of rank 0, and in its sizes of all; TopologyOf has another rank's
  TrainConfig train;
  model::DecoderConfig model;
  v1::Model resolved_model;  // what `model` is made of, for checkpoints to say
  v1::Training resolved_training;
  v1::Precision resolved_precision;
  model::BatchShape batch;
  model::Precision precision = model::ComputeType::kFp32;
  model::DeviceKind device = model::DeviceKind::kCpu;
  int ranks_per_worker = 0;  // at most, as resources says; 0: it does not
  std::vector<model::UnitParameters> units;
  std::vector<fsdp::ClassLayouts> layouts;  // per unit, of its classes (model/unit_classes.h)
  schedules::Outline outline;
  std::vector<parallel::Group> groups;                          // every process group, in creation order
  std::map<std::string, parallel::GroupOptions> group_options;  // by name, of the groups that have any
  schedules::Schedule schedule = schedules::Schedule::kSequential;
  bool separate_weights = false;    // as in `options`
  schedules::BuildOptions options;  // what `stage` is built with
  schedules::StagePrograms stage;
  // Of a job of several stages (plan/stages.h) a plan is of one of them: units, layouts, outline, options and
  // stage are that stage's, and `origin` says which of the whole model's they are. Null: there is one stage.
  std::shared_ptr<const WholeModel> whole;
  schedules::Origin origin;
  std::string program_digest;     // SHA-256 of the texts of all programs
  std::string parameters_digest;  // SHA-256 of the model's Parameters, sorted by name
};

// Requires a spec that jobspec::Validate accepts. Of `resources.device: auto`, which the controller replaces
// when it places the job, the plan is the CPU's: a GPU's kernels take other scratch.
// parallelism.fsdp.prefetch is a number (prefetch_choice.h). The programs have passed the check
// (schedules/check/check.h). Throws std::logic_error where it refuses what was built (a bug of ours, with the
// check's text).
JobPlan MakeJobPlan(const v1::JobSpec& resolved);

// The same without digests, which stay empty: to compare plans by their time and
// memory. The digest is of the programs' texts, which take long to write where there are many instructions.
JobPlan MakeUndigestedPlan(const v1::JobSpec& resolved);

// The model that all stages make up.
const std::vector<model::UnitParameters>& WholeUnits(const JobPlan& plan);
const schedules::Outline& WholeOutline(const JobPlan& plan);

// The units' layouts of the slices that `rank`, which is of the plan's stage, has, in their order:
// plan.layouts are its first rank's. Of the ranks
// that share the experts of a layer, each has its own whole, and no slice of the others.
std::vector<fsdp::ClassLayouts> LayoutsOf(const JobPlan& plan, int rank);

// Of the same units with all experts: what does not depend on how many ranks share them, as checkpoints and
// reports do not.
std::vector<fsdp::ClassLayouts> WholeLayouts(const JobPlan& plan);

// A parameter of the whole job.
struct JobParameter {
  std::string name;  // Hugging Face name
  fsdp::Shape shape;
  bool trained = true;
};

// Every expert's among them, in the order in which reports list those that are trained.
std::vector<JobParameter> Parameters(const JobPlan& plan);
std::vector<JobParameter> TrainedParameters(const JobPlan& plan);

// Which of these a rank's are, in the order of its own units and layouts.
std::vector<size_t> TrainedParametersOf(const JobPlan& plan, int rank);

// Which part of a step is the rank's.
parallel::Topology TopologyOf(const JobPlan& plan, int rank);

// Where `rank` stands among those that unit `unit` is placed on.
fsdp::UnitMesh MeshOf(const JobPlan& plan, size_t unit, int rank);

// Over all ranks.
int64_t TokensPerStep(const JobPlan& plan);

// Microbatches of a step over all ranks, which the mean of all gradients divides by, of experts too: theirs
// come from the tokens of all ranks.
double MicrobatchesPerStep(const JobPlan& plan);

// Ranks of each of the groups of that name, which the plan has.
int GroupRanks(const JobPlan& plan, const std::string& name);

// What the programs communicate with: every use once, in the order of the programs and of their lists, the
// same on all ranks. Communicators are made in it, those of clones last (comm/communicators.h).
std::vector<schedules::CommunicatorUse> CommunicatorUses(const JobPlan& plan);

// Names of the streams that a group with high priority communicates on.
std::set<std::string> HighPriorityStreams(const JobPlan& plan);

// The type of hidden states and layers: "bf16".
std::string ComputeName(const JobPlan& plan);

// All types that the job uses: "bf16, head fp32; gradients between ranks bf16, head fp32".
std::string PrecisionText(const JobPlan& plan);

}  // namespace tandem::plan
