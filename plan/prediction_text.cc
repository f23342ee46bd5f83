// SPDX-License-Identifier: Apache-2.0
#include "plan/prediction_text.h"

#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/memory_plan.h"
#include "plan/quantity_text.h"
#include "platform/counted_text.h"
#include "schedules/program/text.h"
#include "schedules/simulate/timeline.h"

namespace tandem::plan {
namespace {

using nlohmann::json;

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// By stream.
std::vector<int64_t> PathTimes(const JobPlan& plan, const Prediction& prediction) {
  std::vector<int64_t> times(plan.stage.train.streams.size());
  for (const int i : prediction.critical_path) {
    const schedules::InstructionTime& time = prediction.simulation.timeline.instructions[i];
    times[plan.stage.train.instructions[i].stream] += time.end_ns - time.start_ns;
  }
  return times;
}

// "compute 12 ms (98 %), gather 3 ms (20 %)": what is not zero.
std::string StreamTimes(const schedules::Program& program, const std::vector<int64_t>& times,
                        int64_t step_ns) {
  std::vector<std::string> parts;
  for (size_t s = 0; s < times.size(); ++s) {
    if (times[s] > 0) {
      parts.push_back(absl::StrCat(program.streams[s].name, " ", DurationShareText(times[s], step_ns)));
    }
  }
  return absl::StrJoin(parts, ", ");
}

std::string MemoryWaitsText(const MemoryWaits& waits, int64_t step_ns) {
  if (waits.count == 0) {
    return "none: the budget holds whatever may be alive at once";
  }
  return absl::StrCat(waits.count, waits.count == 1 ? " frees " : " free ", SizeText(waits.freed_bytes),
                      " and ", waits.count == 1 ? "costs " : "cost ",
                      waits.cost_ns == 0
                          ? "no time"
                          : absl::StrCat(DurationShareText(waits.cost_ns, step_ns), " of the step"));
}

// "24 for how many rows travel, 1.2 ms; compute was queued for 1.2 ms (100 %)".
std::string HostWaitsText(const schedules::HostWaits& waits) {
  return absl::StrCat(waits.count, " for how many rows travel, ", DurationText(waits.waited_ns),
                      "; compute is queued for ", DurationShareText(waits.covered_ns, waits.waited_ns),
                      " of it");
}

// The arena beside the curve: what the difference is.
std::string ArenaText(const Prediction& prediction) {
  const MemoryPlan& memory = prediction.memory;
  const int64_t in_use =
      schedules::Total(prediction.memory_curve.persistent) + prediction.memory_curve.peak_bytes;
  const int64_t kept = memory.alive_bytes - prediction.memory_curve.peak_bytes;
  return absl::StrCat(SizeText(memory.arena_bytes), ": ", SizeText(in_use), " in use at most, ",
                      SizeText(kept), " kept for what may overlap, ",
                      SizeText(memory.arena_bytes - in_use - kept), " alignment and gaps");
}

std::string CostsText(const schedules::Simulation& simulation) {
  std::vector<std::string> parts;
  const auto add = [&](int count, const char* what) {
    if (count > 0) {
      parts.push_back(absl::StrCat(GroupedText(count), " ", what));
    }
  };
  add(simulation.measured, "measured");
  add(simulation.scaled, "measured in another size and scaled");
  add(simulation.estimated, "estimated from rates");
  return absl::StrCat("instructions: ", absl::StrJoin(parts, ", "));
}

json MachineJson(const JobPlan& plan, const Prediction& prediction, const schedules::DeviceProfile& profile) {
  if (prediction.memory.saved_bytes == 0) {
    return nullptr;
  }
  const MachineMemory machine = PlanMachineMemory(plan, profile);
  return {{"ranks", machine.ranks},
          {"wanted_bytes", machine.wanted_bytes},
          {"saved_bytes", machine.saved_bytes},
          {"needed_bytes", machine.needed_bytes}};
}

}  // namespace

std::string PredictionToText(const JobPlan& plan, const Prediction& prediction,
                             const schedules::DeviceProfile& profile) {
  const schedules::Program& program = plan.stage.train;
  std::string text = "Time of a step (simulated)\n";
  AppendRow(text, "device profile",
            absl::StrCat(profile.name, profile.describe.empty() ? "" : ": ", profile.describe));
  AppendRow(text, "costs", CostsText(prediction.simulation));
  AppendRow(text, "step", DurationText(prediction.step_ns));
  if (prediction.saving_step_ns > 0) {
    AppendRow(text, "step that saves",
              absl::StrCat(DurationText(prediction.saving_step_ns),
                           ": the state is copied to the host beside it; the file is written later"));
  }
  AppendRow(text, "tokens/s",
            absl::StrCat(CountText(prediction.tokens_per_second), ", a rank ",
                         CountText(prediction.tokens_per_second / plan.topology.world)));
  const schedules::ComputeRate& rate = profile.compute.at(ComputeName(plan));
  if (rate.peak_flops_per_second > 0) {
    AppendRow(text, "model FLOPs",
              absl::StrCat(ShareText(prediction.model_flops_utilization, 1), " of the peak of ",
                           CountText(rate.peak_flops_per_second), "FLOP/s in ", ComputeName(plan)));
  }
  AppendRow(text, "streams busy", StreamTimes(program, prediction.busy_ns, prediction.step_ns));
  const int64_t slowed = SlowedNanoseconds(plan, prediction);
  if (slowed > 0) {
    AppendRow(text, "compute slowed",
              absl::StrCat(DurationShareText(slowed, prediction.step_ns),
                           plan.topology.world > 1 ? " by communication beside it"
                                                   : " by the additions of gradients beside it"));
  }
  AppendRow(text, plan.topology.world > 1 ? "exposed communication" : "exposed additions",
            absl::StrCat(DurationShareText(prediction.exposed_ns, prediction.step_ns),
                         prediction.exposed_ns > 0 ? ": " : "",
                         StreamTimes(program, prediction.exposed_by_stream, prediction.step_ns)));
  const std::vector<int64_t> path = PathTimes(plan, prediction);
  const int64_t gaps = prediction.step_ns - std::accumulate(path.begin(), path.end(), int64_t{0});
  AppendRow(
      text, "critical path",
      absl::StrCat(
          StreamTimes(program, path, prediction.step_ns),
          gaps > 0 ? absl::StrCat(", gaps between them ", DurationShareText(gaps, prediction.step_ns)) : ""));
  AppendRow(text, "memory waits", MemoryWaitsText(prediction.memory_waits, prediction.step_ns));
  if (prediction.host_waits.count > 0) {
    AppendRow(text, "host waits", HostWaitsText(prediction.host_waits));
  }
  AppendRow(text, "arena", ArenaText(prediction));
  if (prediction.outside_bytes > 0) {
    AppendRow(
        text, "outside",
        absl::StrCat(SizeText(prediction.outside_bytes), " beside the arena: context, communicators, modules",
                     GraphBytes(plan, profile) > 0 ? ", graphs" : ""));
  }
  if (profile.memory_bytes > 0) {
    AppendRow(text, "device memory",
              absl::StrCat(SizeText(prediction.device_bytes()), " of ", SizeText(profile.memory_bytes), " (",
                           ShareText(static_cast<double>(prediction.device_bytes()),
                                     static_cast<double>(profile.memory_bytes)),
                           ")"));
  }
  if (prediction.memory.saved_bytes > 0) {
    const MachineMemory machine = PlanMachineMemory(plan, profile);
    AppendRow(text, "machine memory",
              absl::StrCat(SizeText(machine.wanted_bytes), " of ",
                           platform::CountedText(machine.ranks, "rank"), ", ", SizeText(machine.saved_bytes),
                           " of it copies to save; with less than ", SizeText(machine.needed_bytes),
                           " available there, steps stand still while a checkpoint is written"));
  }
  return text;
}

json PredictionToJson(const JobPlan& plan, const Prediction& prediction,
                      const schedules::DeviceProfile& profile) {
  const schedules::Program& program = plan.stage.train;
  const schedules::Timeline& timeline = prediction.simulation.timeline;
  json busy = json::object();
  for (size_t s = 0; s < program.streams.size(); ++s) {
    if (prediction.busy_ns[s] > 0) {
      busy[program.streams[s].name] = Seconds(prediction.busy_ns[s]);
    }
  }
  json exposed_by_stream = json::object();
  for (size_t s = 0; s < program.streams.size(); ++s) {
    if (prediction.exposed_by_stream[s] > 0) {
      exposed_by_stream[program.streams[s].name] = Seconds(prediction.exposed_by_stream[s]);
    }
  }
  json stalls = json::array();
  for (const auto& [cause, nanoseconds] : prediction.stalls) {
    stalls.push_back({{"stream", program.streams[cause.stream].name},
                      {"opcode", schedules::ToText(cause.opcode)},
                      {"seconds", Seconds(nanoseconds)}});
  }
  json instructions = json::array();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    instructions.push_back({{"index", i},
                            {"stream", program.streams[program.instructions[i].stream].name},
                            {"what", schedules::ToText(program.instructions[i], plan.outline)},
                            {"start_ns", timeline.instructions[i].start_ns},
                            {"end_ns", timeline.instructions[i].end_ns}});
  }
  const int64_t persistent = schedules::Total(prediction.memory_curve.persistent);
  json curve = json::array();
  for (const schedules::MemoryPoint& point : prediction.memory_curve.points) {
    json locals = json::object();
    for (int kind = 0; kind < schedules::kNumBufferKinds; ++kind) {
      if (point.locals[kind] > 0) {
        locals[schedules::ToText(static_cast<schedules::BufferKind>(kind))] = point.locals[kind];
      }
    }
    curve.push_back({{"ns", point.ns},
                     {"persistent", persistent},
                     {"locals", std::move(locals)},
                     {"in_use", persistent + schedules::Total(point.locals)}});
  }
  const bool peak = profile.compute.at(ComputeName(plan)).peak_flops_per_second > 0;
  return {{"profile",
           {{"name", profile.name}, {"describe", profile.describe}, {"memory_bytes", profile.memory_bytes}}},
          {"costs",
           {{"measured", prediction.simulation.measured},
            {"scaled", prediction.simulation.scaled},
            {"estimated", prediction.simulation.estimated}}},
          {"step_seconds", Seconds(prediction.step_ns)},
          {"saving_step_seconds",
           prediction.saving_step_ns > 0 ? json(Seconds(prediction.saving_step_ns)) : json(nullptr)},
          {"tokens_per_second", prediction.tokens_per_second},
          {"model_flops_utilization", peak ? json(prediction.model_flops_utilization) : json(nullptr)},
          {"busy_seconds", busy},
          {"compute_slowed_seconds", Seconds(SlowedNanoseconds(plan, prediction))},
          {"exposed_seconds", Seconds(prediction.exposed_ns)},
          {"exposed_by_stream", exposed_by_stream},
          {"stalls", stalls},
          {"critical_path", prediction.critical_path},
          {"memory_waits",
           {{"count", prediction.memory_waits.count},
            {"freed_bytes", prediction.memory_waits.freed_bytes},
            {"cost_seconds", Seconds(prediction.memory_waits.cost_ns)}}},
          {"host_waits",
           {{"count", prediction.host_waits.count},
            {"waited_seconds", Seconds(prediction.host_waits.waited_ns)},
            {"covered_seconds", Seconds(prediction.host_waits.covered_ns)}}},
          {"outside_bytes", prediction.outside_bytes > 0 ? json(prediction.outside_bytes) : json(nullptr)},
          {"machine_memory", MachineJson(plan, prediction, profile)},
          {"timeline", instructions},
          {"memory_curve", curve}};
}

}  // namespace tandem::plan
