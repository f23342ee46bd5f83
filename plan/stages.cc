// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fsdp/buffer_bytes.h"
#include "platform/sha256.h"
#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

// The undivided plan on the grid of all stages.
JobPlan OnAllRanks(const JobPlan& undivided, int num_stages, int num_chunks) {
  JobPlan plan = undivided;
  plan.grid.world *= num_stages;
  plan.grid.pipeline = num_stages;
  plan.grid.virtual_pipeline = num_chunks;
  plan.topology = TopologyOf(plan, plan.topology.rank);
  plan.groups = parallel::BuildProcessGroups(plan.grid).value();
  plan.options.norm_group = parallel::NormGroup(plan.grid);
  plan.options.rings.outcome_bytes = fsdp::OutcomeBytes(plan.topology.world);
  return plan;
}

// By node.
std::vector<int> ChunksOf(const schedules::Outline& outline, const std::vector<int64_t>& layers) {
  std::vector<int> chunks;
  const int last = static_cast<int>(layers.size()) - 1;
  int chunk = 0;
  int64_t end = layers.front();
  int last_layer = -1;
  for (const schedules::Node& node : outline.nodes) {
    for (; node.layer >= end && chunk < last; end += layers[chunk]) {
      ++chunk;
    }
    last_layer = std::max(last_layer, node.layer);
    chunks.push_back(node.layer < 0 && last_layer >= 0 ? last : chunk);
  }
  if (std::accumulate(layers.begin(), layers.end(), int64_t{0}) != last_layer + 1) {
    throw std::invalid_argument(
        absl::StrCat("the chunks have other layers than the ", last_layer + 1, " of the model"));
  }
  return chunks;
}

}  // namespace

std::vector<JobPlan> StagePlans(const JobPlan& undivided, int num_stages,
                                const std::vector<int64_t>& layers) {
  if (num_stages < 2 || layers.empty() || layers.size() % num_stages != 0) {
    throw std::invalid_argument(absl::StrCat(layers.size(), " chunks do not fit ", num_stages,
                                             " stages, of which there are two or more"));
  }
  if (undivided.schedule != schedules::Schedule::kSequential) {
    throw std::invalid_argument("not built yet: stages run 1F1B, and no other schedule");
  }
  if (undivided.model.tie_word_embeddings) {
    throw std::invalid_argument(
        "not built yet: model.tie_word_embeddings: true in several stages, of which the first would have the "
        "matrix, and the last a copy with gradients of its own; use false, or one stage");
  }
  const JobPlan all = OnAllRanks(undivided, num_stages, static_cast<int>(layers.size()) / num_stages);
  absl::StatusOr<std::vector<schedules::Stage>> divided =
      schedules::DivideIntoStages(all.outline, ChunksOf(all.outline, layers), num_stages);
  if (!divided.ok()) {
    throw std::invalid_argument(
        absl::StrCat("the model is not divided into stages: ", divided.status().message()));
  }
  const auto whole = std::make_shared<const WholeModel>(WholeModel{all.units, all.outline});
  std::vector<JobPlan> plans;
  std::vector<schedules::StagePrograms> programs;
  std::string texts;
  for (const schedules::Stage& stage : *divided) {
    JobPlan& plan = plans.emplace_back(all);
    plan.whole = whole;
    plan.origin = stage.origin;
    plan.outline = stage.outline;
    plan.units = OfStage(plan, stage.origin.units, all.units);
    plan.layouts = OfStage(plan, stage.origin.units, all.layouts);
    plan.options = schedules::OptionsOf(all.options, stage.origin);
    absl::StatusOr<schedules::StagePrograms> built = schedules::BuildStage(
        plan.outline, plan.options,
        schedules::Pipelined(plan.outline, num_stages, plan.options.num_microbatches),
        schedules::ForwardOnly(plan.outline, plan.options.num_validation_microbatches, num_stages));
    if (!built.ok()) {
      throw std::logic_error(std::string(built.status().message()));
    }
    plan.stage = *std::move(built);
    programs.push_back(plan.stage);
    for (const schedules::Program* program : plan.stage.All()) {
      texts += schedules::ToText(*program, plan.outline);
    }
  }
  if (const absl::Status status = schedules::CheckStages(all.outline, all.options, *divided, programs);
      !status.ok()) {
    throw std::logic_error(absl::StrCat("the check refuses the programs of this job: ", status.message()));
  }
  for (JobPlan& plan : plans) {
    plan.program_digest = platform::Sha256Of(texts);
  }
  return plans;
}

bool CountsTargets(const JobPlan& plan) { return plan.outline.stage + 1 == plan.topology.stage.size; }

}  // namespace tandem::plan
