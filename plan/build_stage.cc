#include "plan/build_stage.h"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fsdp/buffer_bytes.h"
#include "model/decoder_outline.h"
#include "parallel/process_groups.h"
#include "schedules/check/check.h"

namespace tandem::plan {
namespace {

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

schedules::BuildOptions OptionsOf(const schedules::Strategy& strategy, int prefetch, const JobPlan& plan) {
  const int ranks = plan.train.ranks;
  schedules::BuildOptions options{
      .num_microbatches = plan.train.microbatches_per_rank,
      .num_validation_microbatches = Validates(plan.train) ? plan.train.validation_rounds : 0,
      .strategy = strategy,
      .expert_strategy = strategy,
      .dense = {.inner = ranks},
      .expert = {.inner = ranks},
      .rings = {.inputs_bytes = fsdp::InputsBytes(), .outcome_bytes = fsdp::OutcomeBytes(ranks)},
      .parameter_norms = plan.train.parameter_norms,
      .prefetch = prefetch,
  };
  for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
    const fsdp::Layout& layout = plan.layouts[unit];
    const int main_bytes = model::ElementBytes(plan.precision.Of(plan.units[unit].name).main);
    const fsdp::UnitBufferBytes bytes = fsdp::BufferBytesOf(layout, ranks, main_bytes);
    const int64_t shard = fsdp::ShardElements(layout, ranks);
    options.units.push_back({.shard_elements = shard,
                             .outer_shard_elements = shard,
                             .norm_terms_bytes = bytes.norm_terms,
                             .update_norms_bytes = bytes.update_norms,
                             .optimizer_scratch_bytes = bytes.optimizer_scratch});
  }
  return options;
}

}  // namespace

void BuildStage(const std::string& strategy, int prefetch, JobPlan& plan) {
  const absl::StatusOr<schedules::Strategy> placements = schedules::StrategyOf(strategy);
  RequireOk(placements.status());
  plan.outline = model::DecoderOutline(plan.model, plan.batch, plan.precision, UnitLayouts(plan.layouts));
  plan.group_ranks = GroupRanks(plan.train.ranks);
  plan.options = OptionsOf(*placements, prefetch, plan);
  absl::StatusOr<schedules::StagePrograms> stage = schedules::BuildStage(plan.outline, plan.options);
  RequireOk(stage.status());
  plan.stage = *std::move(stage);
  RequireOk(schedules::CheckStage(plan.outline, plan.options, plan.stage));
}

}  // namespace tandem::plan
