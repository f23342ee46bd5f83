// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

#include <algorithm>

#include "fsdp/layout.h"
#include "model/unit_parameters.h"
#include "platform/files.h"
#include "schedules/passes/live_locals.h"
#include "schedules/passes/passes.h"
#include "schedules/passes/segments.h"

namespace tandem::plan {
namespace {

int64_t CheckpointBytes(const JobPlan& plan) {
  if (plan.train.checkpoint.directory.empty() && plan.train.checkpoint.resume.empty()) {
    return 0;
  }
  int64_t bytes = platform::kFilePartBytes;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const std::vector<model::UnitTypes> types = model::ClassesOf(plan.units[unit], plan.precision).types;
    for (size_t c = 0; c < types.size(); ++c) {
      if (plan.outline.units[unit].frozen && types[c].compute != types[c].main) {  // loaded as a copy
        bytes += fsdp::HeldRange(plan.layouts[unit][c], MeshOf(plan, unit, /*rank=*/0)).size() *
                 model::ElementBytes(types[c].main);
      }
    }
  }
  return bytes;
}

}  // namespace

MemoryPlan PlanMemory(const JobPlan& plan) {
  MemoryPlan memory;
  for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
    if (buffer.life != schedules::Life::kLocal && !schedules::IsHost(buffer.kind)) {
      memory.persistent[static_cast<int>(buffer.kind)] +=
          (buffer.life == schedules::Life::kRing ? 2 : 1) * buffer.bytes.bound;
    }
  }
  for (const schedules::Program* program : plan.stage.All()) {
    const schedules::Budgets budgets = schedules::BudgetsOf(*program);
    memory.alive_bytes = std::max(memory.alive_bytes, schedules::MostBytesAlive(*program));
    memory.least_budget_bytes = std::max(memory.least_budget_bytes, budgets.least);
    memory.default_budget_bytes = std::max(memory.default_budget_bytes, budgets.by_default);
  }
  memory.budget_bytes =
      plan.options.budget_bytes > 0 ? plan.options.budget_bytes : memory.default_budget_bytes;
  memory.persistent_bytes = plan.stage.persistent_bytes;
  memory.arena_bytes = plan.stage.arena_bytes;
  memory.alive_bytes = std::min(memory.alive_bytes, memory.arena_bytes - memory.persistent_bytes);
  memory.gap_bytes = memory.arena_bytes - memory.persistent_bytes - memory.alive_bytes;
  memory.host_bytes = plan.stage.saved_at;
  memory.saved_bytes = plan.stage.host_bytes - plan.stage.saved_at;
  memory.checkpoint_bytes = CheckpointBytes(plan);
  return memory;
}

int64_t HostBytesWanted(const schedules::StagePrograms& stage, model::DeviceKind device) {
  return stage.host_bytes + (device == model::DeviceKind::kCpu ? stage.arena_bytes : 0);
}

MachineMemory PlanMachineMemory(const JobPlan& plan, const schedules::DeviceProfile& profile) {
  MachineMemory machine{.ranks = plan.topology.world};
  if (profile.network.bytes_per_second > 0 && profile.link.max_ranks > 0) {
    machine.ranks = std::min(machine.ranks, profile.link.max_ranks);
  }
  if (plan.ranks_per_worker > 0) {
    machine.ranks = std::min(machine.ranks, plan.ranks_per_worker);
  }
  machine.wanted_bytes = machine.ranks * HostBytesWanted(plan.stage, plan.device);
  machine.saved_bytes = machine.ranks * (plan.stage.host_bytes - plan.stage.saved_at);
  machine.needed_bytes = machine.wanted_bytes + (machine.wanted_bytes - 1) / 9;
  return machine;
}

int64_t GraphBytes(const JobPlan& plan, const schedules::DeviceProfile& profile) {
  constexpr int64_t kPiece = int64_t{2} << 20;
  const int64_t bytes = profile.graph_pass_bytes * schedules::CountPassesOfGraphs(plan.stage.train);
  return (bytes + kPiece - 1) / kPiece * kPiece;
}

int64_t OutsideBytes(const JobPlan& plan, const schedules::DeviceProfile& profile) {
  if (profile.context_bytes == 0) {
    return 0;
  }
  int64_t bytes = profile.context_bytes + GraphBytes(plan, profile);
  for (const schedules::CommunicatorUse& use : CommunicatorUses(plan)) {
    bytes += GroupRanks(plan, use.group) > 1 ? profile.communicator_bytes : 0;
  }
  return bytes;
}

}  // namespace tandem::plan
