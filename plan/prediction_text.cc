#include "plan/prediction_text.h"

#include <array>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/quantity_text.h"
#include "schedules_v1/text.h"
#include "schedules_v1/timeline.h"

namespace tandem::plan {
namespace {

using nlohmann::json;
using schedules_v1::StreamKind;

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::array<int64_t, schedules_v1::kNumStreams> PathTimes(const JobPlan& plan, const Prediction& prediction) {
  std::array<int64_t, schedules_v1::kNumStreams> times{};
  for (const int i : prediction.critical_path) {
    const schedules_v1::InstructionTime& time = prediction.simulation.timeline.instructions[i];
    times[static_cast<int>(plan.train_program.instructions[i].stream)] += time.end_ns - time.start_ns;
  }
  return times;
}

// "compute 12 ms (98 %), gather 3 ms (20 %)": what is not zero.
std::string StreamTimes(const std::array<int64_t, schedules_v1::kNumStreams>& times, int64_t step_ns) {
  std::vector<std::string> parts;
  for (int s = 0; s < schedules_v1::kNumStreams; ++s) {
    if (times[s] > 0) {
      parts.push_back(
          absl::StrCat(schedules_v1::ToText(static_cast<StreamKind>(s)), " ", DurationText(times[s]), " (",
                       ShareText(static_cast<double>(times[s]), static_cast<double>(step_ns)), ")"));
    }
  }
  return absl::StrJoin(parts, ", ");
}

std::string CostsText(const schedules_v1::Simulation& simulation) {
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

}  // namespace

std::string PredictionToText(const JobPlan& plan, const Prediction& prediction,
                             const schedules_v1::DeviceProfile& profile) {
  std::string text = "Time of a step (simulated)\n";
  AppendRow(text, "device profile",
            absl::StrCat(profile.name, profile.describe.empty() ? "" : ": ", profile.describe));
  AppendRow(text, "costs", CostsText(prediction.simulation));
  AppendRow(text, "step", DurationText(prediction.step_ns));
  AppendRow(text, "tokens/s",
            absl::StrCat(CountText(prediction.tokens_per_second), ", a rank ",
                         CountText(prediction.tokens_per_second / plan.train.ranks)));
  const schedules_v1::ComputeRate& rate = profile.compute.at(ComputeName(plan.compute));
  if (rate.peak_flops_per_second > 0) {
    AppendRow(text, "model FLOPs",
              absl::StrCat(ShareText(prediction.model_flops_utilization, 1), " of the peak of ",
                           CountText(rate.peak_flops_per_second), "FLOP/s in ", ComputeName(plan.compute)));
  }
  AppendRow(text, "streams busy", StreamTimes(prediction.busy_ns, prediction.step_ns));
  const int64_t slowed = SlowedNanoseconds(prediction);
  if (slowed > 0) {
    AppendRow(text, "compute slowed",
              absl::StrCat(DurationText(slowed), " (",
                           ShareText(static_cast<double>(slowed), static_cast<double>(prediction.step_ns)),
                           ") by communication beside it"));
  }
  AppendRow(text, "exposed communication",
            absl::StrCat(DurationText(prediction.exposed_ns), " (",
                         ShareText(static_cast<double>(prediction.exposed_ns),
                                   static_cast<double>(prediction.step_ns)),
                         ")"));
  const std::array<int64_t, schedules_v1::kNumStreams> path = PathTimes(plan, prediction);
  const int64_t gaps = prediction.step_ns - std::accumulate(path.begin(), path.end(), int64_t{0});
  AppendRow(text, "critical path",
            absl::StrCat(StreamTimes(path, prediction.step_ns),
                         gaps > 0 ? absl::StrCat(", gaps between them ", DurationText(gaps), " (",
                                                 ShareText(static_cast<double>(gaps),
                                                           static_cast<double>(prediction.step_ns)),
                                                 ")")
                                  : ""));
  if (profile.memory_bytes > 0) {
    AppendRow(
        text, "device memory",
        absl::StrCat(SizeText(prediction.memory.arena_bytes), " of ", SizeText(profile.memory_bytes), " (",
                     ShareText(static_cast<double>(prediction.memory.arena_bytes),
                               static_cast<double>(profile.memory_bytes)),
                     ")"));
  }
  return text;
}

json PredictionToJson(const JobPlan& plan, const Prediction& prediction,
                      const schedules_v1::DeviceProfile& profile) {
  const schedules_v1::Program& program = plan.train_program;
  const schedules_v1::Timeline& timeline = prediction.simulation.timeline;
  json busy = json::object();
  for (int s = 0; s < schedules_v1::kNumStreams; ++s) {
    if (prediction.busy_ns[s] > 0) {
      busy[schedules_v1::ToText(static_cast<StreamKind>(s))] = Seconds(prediction.busy_ns[s]);
    }
  }
  json exposed_by = json::object();
  for (const auto& [opcode, nanoseconds] : prediction.exposed_by) {
    exposed_by[schedules_v1::ToText(opcode)] = Seconds(nanoseconds);
  }
  json instructions = json::array();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    instructions.push_back({{"index", i},
                            {"stream", schedules_v1::ToText(program.instructions[i].stream)},
                            {"what", schedules_v1::ToText(program.instructions[i], plan.outline_v1)},
                            {"start_ns", timeline.instructions[i].start_ns},
                            {"end_ns", timeline.instructions[i].end_ns}});
  }
  const std::vector<int64_t> times = schedules_v1::IssueTimes(timeline);
  const schedules_v1::MemoryCurve& memory = prediction.memory.train;
  json curve = json::array();
  for (size_t i = 0; i < times.size(); ++i) {
    const schedules_v1::MemoryUse& use = memory.points[i].use;
    curve.push_back({{"ns", times[i]},
                     {"persistent", memory.persistent},
                     {"activations", use.activations},
                     {"activation_gradients", use.gradients},
                     {"scratch", use.scratch},
                     {"in_use", memory.points[i].in_use}});
  }
  const bool peak = profile.compute.at(ComputeName(plan.compute)).peak_flops_per_second > 0;
  return {{"profile",
           {{"name", profile.name}, {"describe", profile.describe}, {"memory_bytes", profile.memory_bytes}}},
          {"costs",
           {{"measured", prediction.simulation.measured},
            {"scaled", prediction.simulation.scaled},
            {"estimated", prediction.simulation.estimated}}},
          {"step_seconds", Seconds(prediction.step_ns)},
          {"tokens_per_second", prediction.tokens_per_second},
          {"model_flops_utilization", peak ? json(prediction.model_flops_utilization) : json(nullptr)},
          {"busy_seconds", busy},
          {"compute_slowed_seconds", Seconds(SlowedNanoseconds(prediction))},
          {"exposed_seconds", Seconds(prediction.exposed_ns)},
          {"exposed_by", exposed_by},
          {"critical_path", prediction.critical_path},
          {"timeline", instructions},
          {"memory_curve", curve}};
}

}  // namespace tandem::plan
