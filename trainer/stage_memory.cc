// SPDX-License-Identifier: Apache-2.0
#include "trainer/stage_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/work_together.h"
#include "device/device.h"
#include "model/node.h"
#include "model/node_kinds.h"
#include "model/unit_parameters.h"
#include "plan/job_plan.h"
#include "plan/memory_plan.h"
#include "platform/control_groups.h"
#include "trainer/backend.h"

namespace tandem::trainer {

using schedules::Buffer;
using schedules::Operand;
using schedules::Program;

namespace {

// Of a node's state.
std::string HuggingFaceNameOf(const plan::JobPlan& plan, const std::string& state) {
  const std::vector<model::DecoderNode> nodes = model::DecoderNodeList(plan.model);
  const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const model::DecoderNode& each) {
    return state.starts_with(each.name + ".");
  });
  return model::HuggingFaceName(plan.model.names, *node, state.substr(node->name.size() + 1));
}

}  // namespace

StageMemory::StageMemory(const schedules::StagePrograms& stage, device::Device& device,
                         std::shared_ptr<device::Region> arena, bool fill_with_nan,
                         std::shared_ptr<device::Region> saved)
    : arena_(device, std::move(arena), fill_with_nan),
      host_(device, device.ReserveHost(stage.saved_at)),
      saved_at_(stage.saved_at) {
  if (saved != nullptr) {
    saved_.emplace(device, std::move(saved));
  }
  device.Fill(arena_.all().begin, 0, stage.persistent_bytes);
  const device::Memory host = host_.all();  // what saves are written from is written before it is read
  std::memset(host.begin, 0, static_cast<size_t>(host.bytes));
}

device::Memory StageMemory::At(const Buffer& buffer, int element) const {
  const int64_t offset = buffer.address + element * schedules::RingStride(buffer);
  if (schedules::IsSaved(buffer.kind)) {
    return saved_.value().At(offset - saved_at_, buffer.bytes.bound);
  }
  return schedules::IsHost(buffer.kind) ? host_.At(offset, buffer.bytes.bound)
                                        : arena_.At(offset, buffer.bytes.bound);
}

device::Memory StageMemory::At(const Program& program, const Operand& operand, int parity) const {
  const Buffer& buffer = program.buffers[operand.buffer];
  const int element = buffer.life == schedules::Life::kRing ? (operand.former ? 1 - parity : parity) : 0;
  const device::Memory whole = At(buffer, element);
  if (operand.part < 0) {
    return whole;
  }
  const schedules::BufferPart& part = buffer.parts[operand.part];
  return {whole.begin + part.begin, part.end - part.begin};
}

std::vector<fsdp::UnitShard> MakeUnits(const plan::JobPlan& plan, int rank, Backend& backend) {
  std::vector<fsdp::UnitShard> units;
  std::vector<fsdp::ClassLayouts> layouts = plan::LayoutsOf(plan, rank);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const std::vector<model::UnitTypes> types = model::ClassesOf(plan.units[unit], plan.precision).types;
    std::vector<fsdp::UnitClass> classes;
    for (size_t c = 0; c < types.size(); ++c) {
      classes.push_back({.layout = std::move(layouts[unit].at(c)),
                         .types = {.main = model::ElementKindOf(types[c].main),
                                   .compute = model::ElementKindOf(types[c].compute),
                                   .transport = model::ElementKindOf(types[c].transport),
                                   .frozen = plan.outline.units[unit].frozen}});
    }
    units.emplace_back(plan.units[unit].name, std::move(classes), plan::MeshOf(plan, unit, rank),
                       backend.device(), backend.shard_kernels());
  }
  return units;
}

std::vector<fsdp::StateMemory> StatesOf(const plan::JobPlan& plan, const StageMemory& memory) {
  std::vector<fsdp::StateMemory> states(plan.units.size());
  for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
    if (buffer.kind == schedules::BufferKind::kWeights) {
      states.at(buffer.subject).weights = memory.At(buffer);
    } else if (buffer.kind == schedules::BufferKind::kPublished) {
      states.at(buffer.subject).published = memory.At(buffer);
    } else if (buffer.kind == schedules::BufferKind::kOptimizerState) {
      const device::Memory whole = memory.At(buffer);
      const auto part = [&](size_t i) {
        return device::Memory{whole.begin + buffer.parts.at(i).begin,
                              buffer.parts[i].end - buffer.parts[i].begin};
      };
      states.at(buffer.subject).exp_avg = part(0);
      states.at(buffer.subject).exp_avg_sq = part(1);
    }
  }
  return states;
}

std::vector<checkpoint::CopiedMemory> SavedOf(const plan::JobPlan& plan, const StageMemory& memory) {
  std::vector<checkpoint::CopiedMemory> saved;
  const std::vector<schedules::Buffer>& buffers = plan.stage.train.buffers;
  for (const schedules::Buffer& from : buffers) {
    for (const schedules::Buffer& to : buffers) {
      if (schedules::IsSaved(to.kind) && to.kind == schedules::HostCopyOf(from.kind) &&
          to.subject == from.subject) {
        saved.push_back({.from = memory.At(from), .to = memory.At(to)});
      }
    }
  }
  return saved;
}

std::vector<std::string> UpdatedStateNames(const plan::JobPlan& plan) {
  std::vector<std::string> names;
  for (const schedules::NodeState& state : plan::WholeOutline(plan).states) {
    if (state.counter >= 0) {
      names.push_back(HuggingFaceNameOf(plan, state.name));
    }
  }
  return names;
}

std::vector<checkpoint::WholeArray> UpdatedStatesOf(const plan::JobPlan& plan, const StageMemory& memory) {
  std::vector<checkpoint::WholeArray> arrays;
  for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
    if (buffer.kind == schedules::BufferKind::kNodeState &&
        plan.outline.states[buffer.subject].counter >= 0) {
      arrays.push_back({.name = HuggingFaceNameOf(plan, buffer.name), .memory = memory.At(buffer)});
    }
  }
  return arrays;
}

std::string ToText(const HostRoom& room) {
  return nlohmann::json{{"host", room.host}, {"wanted", room.wanted}, {"available", room.available}}.dump();
}

std::string WhyNoRoom(const std::vector<std::string>& texts) {
  constexpr double kGiB = 1 << 30;
  std::map<std::string, HostRoom> machines;
  for (const std::string& text : texts) {
    const auto json = nlohmann::json::parse(text);
    const auto available = json.at("available").get<int64_t>();
    HostRoom& machine =
        machines.try_emplace(json.at("host").get<std::string>(), HostRoom{.available = available})
            .first->second;
    machine.wanted += json.at("wanted").get<int64_t>();
    machine.available = std::min(machine.available, available);
  }
  for (const auto& [host, machine] : machines) {
    if (machine.wanted > plan::MostHostBytes(machine.available)) {
      return absl::StrFormat(
          "machine %s has %.2f GiB of memory available, and may give 90 %% of it to its ranks, which take "
          "%.2f GiB with the copies that checkpoints are written from; give it more memory, or fewer ranks",
          host, static_cast<double>(machine.available) / kGiB, static_cast<double>(machine.wanted) / kGiB);
    }
  }
  return "";
}

SharedRoom ReserveTogether(comm::Communicator& comm, device::Device& device, const std::string& host,
                           int64_t wanted, int64_t bytes) {
  SharedRoom room;
  // All ranks look before one of them takes any.
  room.refused = WhyNoRoom(checkpoint::ExchangeTexts(
      comm, ToText({.host = host, .wanted = wanted, .available = platform::AvailableMemoryBytes()})));
  if (!room.refused.empty()) {
    return room;
  }
  std::string error;
  try {
    room.region = device.ReserveHost(bytes);
  } catch (const device::OutOfMemory& out) {
    error = absl::StrCat("machine ", host, ": ", out.what());
  }
  for (const std::string& of_rank : checkpoint::ExchangeTexts(comm, error)) {
    room.refused = room.refused.empty() ? of_rank : room.refused;
  }
  if (!room.refused.empty()) {
    room.region.reset();
  }
  return room;
}

}  // namespace tandem::trainer
