// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "schedules/program/text.h"

namespace tandem::schedules {
namespace {

using Json = nlohmann::ordered_json;

double Microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

int64_t FreedBytes(const Instruction& instruction) {
  int64_t bytes = 0;
  for (const Wait& wait : instruction.waits) {
    bytes += wait.frees;
  }
  return bytes;
}

class TraceWriter {
 public:
  // origin_ns: the earliest moment of all runs.
  TraceWriter(const Outline& outline, int64_t origin_ns) : outline_(outline), origin_ns_(origin_ns) {}

  void Add(const TraceRun& run) {
    const int rank = run.timeline->rank;
    if (ranks_.insert(rank).second) {
      Name(rank, 0, "process_name", absl::StrCat("rank ", rank));
    }
    const int64_t start_ns = run.offset_ns - origin_ns_;
    const std::vector<int> bound_by = BoundBy(*run.program, *run.timeline);
    for (size_t i = 0; i < run.program->instructions.size(); ++i) {
      const Instruction& instruction = run.program->instructions[i];
      const InstructionTime& time = run.timeline->instructions[i];
      if (time.end_ns <= time.start_ns) {
        continue;
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
      if (const int64_t bytes = FreedBytes(instruction); bytes > 0) {
        arguments["waits_free_bytes"] = bytes;
      }
      Write({{"name", ToText(instruction, outline_)},
             {"cat", ToText(instruction.opcode)},
             {"ph", "X"},
             {"pid", rank},
             {"tid", TrackOf(rank, run.program->streams[instruction.stream].name)},
             {"ts", Microseconds(start_ns + time.start_ns)},
             {"dur", Microseconds(time.end_ns - time.start_ns)},
             {"args", std::move(arguments)}});
    }
    if (run.memory != nullptr) {
      AddMemory(*run.memory, rank, start_ns);
    }
  }

  std::string Take() {
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  void AddMemory(const MemoryCurve& memory, int rank, int64_t start_ns) {
    std::array<bool, kNumBufferKinds> shown{};
    for (int kind = 0; kind < kNumBufferKinds; ++kind) {
      shown[kind] = memory.persistent[kind] > 0;
      for (const MemoryPoint& point : memory.points) {
        shown[kind] = shown[kind] || point.locals[kind] > 0;
      }
    }
    for (const MemoryPoint& point : memory.points) {
      Json bytes = Json::object();
      for (int kind = 0; kind < kNumBufferKinds; ++kind) {
        if (shown[kind]) {
          bytes[ToText(static_cast<BufferKind>(kind))] = memory.persistent[kind] + point.locals[kind];
        }
      }
      Write({{"name", "memory"},
             {"ph", "C"},
             {"pid", rank},
             {"ts", Microseconds(start_ns + point.ns)},
             {"args", std::move(bytes)}});
    }
  }

  // From 1, in the order in which streams come.
  int TrackOf(int rank, const std::string& stream) {
    std::map<std::string, int>& tracks = tracks_[rank];
    const auto [track, added] = tracks.emplace(stream, static_cast<int>(tracks.size()) + 1);
    if (added) {
      Name(rank, track->second, "thread_name", stream);
    }
    return track->second;
  }

  void Name(int rank, int track, const char* kind, const std::string& name) {
    Write({{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}});
  }

  void Write(const Json& event) {
    absl::StrAppend(&events_, events_.empty() ? "" : ",\n",
                    event.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
  }

  const Outline& outline_;
  const int64_t origin_ns_;
  std::set<int> ranks_;
  std::map<int, std::map<std::string, int>> tracks_;  // rank → stream → track
  std::string events_;
};

}  // namespace

std::string TraceToJson(const Outline& outline, const std::vector<TraceRun>& runs) {
  int64_t origin_ns = 0;
  for (const TraceRun& run : runs) {
    for (const InstructionTime& time : run.timeline->instructions) {
      origin_ns = std::min(origin_ns, run.offset_ns + time.start_ns);
    }
  }
  TraceWriter writer(outline, origin_ns);
  for (const TraceRun& run : runs) {
    writer.Add(run);
  }
  return writer.Take();
}

}  // namespace tandem::schedules
