#include "schedules_v1/trace.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

using Json = nlohmann::ordered_json;

double Microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

class TraceWriter {
 public:
  explicit TraceWriter(const Outline& outline) : outline_(outline) {}

  void Add(const TraceRun& run) {
    const int rank = run.timeline->rank;
    if (ranks_.insert(rank).second) {
      Name(rank, 0, "process_name", absl::StrCat("rank ", rank));
    }
    const std::vector<int> bound_by = BoundBy(*run.program, *run.timeline);
    for (size_t i = 0; i < run.program->instructions.size(); ++i) {
      const Instruction& instruction = run.program->instructions[i];
      const InstructionTime& time = run.timeline->instructions[i];
      if (time.end_ns <= time.start_ns) {
        continue;
      }
      const int track = static_cast<int>(instruction.stream) + 1;
      if (tracks_.insert({rank, track}).second) {
        Name(rank, track, "thread_name", ToText(instruction.stream));
      }
      Json arguments = {{"instruction", i}, {"program", run.program->name}};
      if (run.timeline->step > 0) {
        arguments["step"] = run.timeline->step;
      }
      if (instruction.microbatch >= 0) {
        arguments["microbatch"] = instruction.microbatch;
      }
      if (bound_by[i] >= 0) {
        arguments["bound_by"] =
            absl::StrCat(bound_by[i], " ", ToText(run.program->instructions[bound_by[i]], outline_));
      }
      Write({{"name", ToText(instruction, outline_)},
             {"cat", ToText(instruction.opcode)},
             {"ph", "X"},
             {"pid", rank},
             {"tid", track},
             {"ts", Microseconds(run.offset_ns + time.start_ns)},
             {"dur", Microseconds(time.end_ns - time.start_ns)},
             {"args", std::move(arguments)}});
    }
    if (run.memory != nullptr) {
      AddMemory(run, rank);
    }
  }

  std::string Take() {
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  void AddMemory(const TraceRun& run, int rank) {
    const std::vector<int64_t> times = IssueTimes(*run.timeline);
    const MemoryUse* last = nullptr;
    for (size_t i = 0; i < times.size(); ++i) {
      const MemoryPoint& point = run.memory->points[i];
      if (last != nullptr && *last == point.use) {
        continue;
      }
      last = &point.use;
      Json bytes = Json::object();
      for (const auto& [category, persistent] : run.persistent) {
        bytes[category] = persistent;
      }
      if (run.persistent.empty()) {
        bytes["persistent"] = run.memory->persistent;
      }
      bytes["activations"] = point.use.activations;
      bytes["activation gradients"] = point.use.gradients;
      bytes["scratch"] = point.use.scratch;
      Write({{"name", "arena"},
             {"ph", "C"},
             {"pid", rank},
             {"ts", Microseconds(run.offset_ns + times[i])},
             {"args", std::move(bytes)}});
    }
  }

  void Name(int rank, int track, const char* kind, const std::string& name) {
    Write({{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}});
  }

  void Write(const Json& event) {
    absl::StrAppend(&events_, events_.empty() ? "" : ",\n",
                    event.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
  }

  const Outline& outline_;
  std::set<int> ranks_;
  std::set<std::pair<int, int>> tracks_;
  std::string events_;
};

}  // namespace

std::string TraceToJson(const Outline& outline, const std::vector<TraceRun>& runs) {
  TraceWriter writer(outline);
  for (const TraceRun& run : runs) {
    writer.Add(run);
  }
  return writer.Take();
}

}  // namespace tandem::schedules_v1
