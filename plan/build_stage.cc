// SPDX-License-Identifier: Apache-2.0
#include "plan/build_stage.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/buffer_bytes.h"
#include "model/unit_parameters.h"
#include "parallel/data_parallel_mesh.h"
#include "parallel/job_groups.h"
#include "plan/graph_segments.h"
#include "plan/recomputation.h"
#include "schedules/check/check.h"

namespace tandem::plan {
namespace {

void RequireOk(const absl::Status& status) {
  if (!status.ok()) {
    throw std::logic_error(absl::StrCat("the check refuses the programs of this job: ", status.message()));
  }
}

// Rounds of one run of `validate`. A validation is several of them, as few and as equal as that allows, so
// that a request that comes during one waits about as long as for a step.
int ValidationRoundsOfARun(const TrainConfig& train) {
  constexpr int64_t kFewest = 4;  // forwards alone, so about a step of one round
  if (!Validates(train)) {
    return 0;
  }
  const int64_t most = std::max<int64_t>(train.microbatches_per_rank, kFewest);
  const int64_t runs = (train.validation_rounds + most - 1) / most;
  return static_cast<int>((train.validation_rounds + runs - 1) / runs);
}

schedules::MeshAxes Axes(const absl::StatusOr<parallel::DataParallelMesh>& mesh) {
  RequireOk(mesh.status());
  return {.inner = mesh->inner,
          .outer = mesh->outer,
          .inner_group = mesh->inner_group,
          .gather_group = mesh->gather_group,
          .outer_group = mesh->outer_group};
}

// By unit.
std::vector<bool> KeptGathered(const JobPlan& plan) {
  std::vector<bool> kept;
  for (const model::UnitParameters& unit : plan.units) {
    kept.push_back(std::any_of(plan.train.keep_gathered.begin(), plan.train.keep_gathered.end(),
                               [&](const std::string& word) { return word == "all" || word == unit.name; }));
  }
  return kept;
}

schedules::BuildOptions OptionsOf(const schedules::Strategy& strategy, const parallel::ProcessGroups& groups,
                                  const std::string& norm_group, int prefetch, const JobPlan& plan) {
  const schedules::MeshAxes dense = Axes(parallel::DenseMesh(groups));
  const schedules::MeshAxes expert =
      groups.Find("expt_dp") == nullptr ? dense : Axes(parallel::ExpertMesh(groups));
  return {
      .num_microbatches = plan.train.microbatches_per_rank,
      .num_validation_microbatches = ValidationRoundsOfARun(plan.train),
      .strategy = strategy,
      .expert_strategy = strategy,
      .dense = dense,
      .expert = expert,
      .rings = {.inputs_bytes = fsdp::InputsBytes(),
                .outcome_bytes = fsdp::OutcomeBytes(plan.topology.world)},
      .norm_group = norm_group,
      .parameter_norms = plan.train.parameter_norms,
      .saves = !plan.train.checkpoint.directory.empty(),
      .prefetch = prefetch,
  };
}

std::vector<schedules::UnitSizes> SizesOf(const JobPlan& plan) {
  std::vector<schedules::UnitSizes> sizes;
  for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
    const int main_bytes = model::ElementBytes(plan.precision.Of(plan.units[unit].name).main);
    const fsdp::UnitMesh mesh = MeshOf(plan, unit, /*rank=*/0);  // the same sizes on every rank
    const fsdp::UnitBufferBytes bytes = fsdp::BufferBytesOf(plan.layouts[unit], mesh, main_bytes);
    schedules::UnitSizes& of_unit = sizes.emplace_back();
    for (const fsdp::Layout& layout : plan.layouts[unit]) {
      of_unit.classes.push_back({.shard_elements = fsdp::ShardElements(layout, mesh),
                                 .outer_shard_elements = fsdp::PieceElements(layout, mesh)});
    }
    of_unit.norm_terms_bytes = bytes.norm_terms;
    of_unit.update_norms_bytes = bytes.update_norms;
    of_unit.optimizer_scratch_bytes = bytes.optimizer_scratch;
  }
  return sizes;
}

// The place of `rank` in the one of the groups of that name that it is in.
int RankIn(const std::vector<parallel::Group>& groups, const std::string& name, int rank) {
  for (const parallel::Group& group : groups) {
    const int place = group.name == name ? parallel::PlaceIn(group, rank) : -1;
    if (place >= 0) {
      return place;
    }
  }
  throw std::logic_error(absl::StrCat("rank ", rank, " is in no group ", name));
}

}  // namespace

std::vector<model::UnitLayout> UnitLayouts(const std::vector<fsdp::ClassLayouts>& layouts) {
  std::vector<model::UnitLayout> result;
  for (const fsdp::ClassLayouts& classes : layouts) {
    model::UnitLayout& unit = result.emplace_back();
    for (const fsdp::Layout& layout : classes) {
      unit.elements.push_back(layout.elements);
      for (const auto& parameter : layout.parameters) {
        unit.parameters.push_back({.begin = parameter.range.begin, .end = parameter.range.end});
      }
    }
  }
  return result;
}

fsdp::UnitMesh MeshOf(const JobPlan& plan, size_t unit, int rank) {
  const schedules::Unit& placed = plan.outline.units.at(unit);
  const schedules::MeshAxes& axes = schedules::AxesOf(plan.options, placed);
  const schedules::Strategy& strategy = schedules::PlacementOf(plan.options, placed);
  return {.inner = axes.inner,
          .inner_rank = RankIn(plan.groups, axes.inner_group, rank),
          .outer = axes.outer,
          .outer_rank = axes.outer > 1 ? RankIn(plan.groups, axes.outer_group, rank) : 0,
          .inner_shards_optimizer = strategy.inner.optimizer == schedules::Placement::kShard,
          .outer_shards_optimizer = strategy.outer.optimizer == schedules::Placement::kShard};
}

void BuildOutline(JobPlan& plan) {
  plan.outline =
      model::DecoderOutline(plan.model, plan.batch, plan.precision, plan.device, UnitLayouts(plan.layouts));
}

void BuildStage(const std::string& strategy, int prefetch, JobPlan& plan) {
  const absl::StatusOr<schedules::Strategy> placements = schedules::StrategyOf(strategy);
  RequireOk(placements.status());
  BuildOutline(plan);
  const absl::StatusOr<parallel::ProcessGroups> groups = parallel::JobGroups(plan.grid);
  RequireOk(groups.status());
  plan.groups = parallel::Listed(*groups);
  plan.options = OptionsOf(*placements, *groups, parallel::NormGroup(plan.grid), prefetch, plan);
  BuildPrograms(plan);
}

void BuildPrograms(JobPlan& plan) {
  plan.options.units = SizesOf(plan);
  plan.options.recompute = RecomputedValues(plan.outline, plan.train.recompute);
  plan.options.keep_gathered = KeptGathered(plan);
  plan.options.replayed = ReplayedNodes(plan.outline, plan.train.replayed);
  plan.options.hold = schedules::HoldOf(plan.schedule);
  plan.options.separate_weights = plan.separate_weights;
  absl::StatusOr<schedules::StagePrograms> stage =
      schedules::BuildStage(plan.outline, plan.options, plan.schedule);
  RequireOk(stage.status());
  plan.stage = *std::move(stage);
  RequireOk(schedules::CheckStage(plan.outline, plan.options, plan.stage));
}

}  // namespace tandem::plan
