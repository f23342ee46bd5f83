// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/measurement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

struct Samples {
  MeasuredTime time;  // kind and work
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;
};

double Mean(const std::vector<double>& values) {
  return values.empty()
             ? 0
             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::map<int64_t, std::vector<const Timeline*>> RanksByStep(const Program& program,
                                                            absl::Span<const Timeline> timelines) {
  std::map<int64_t, std::vector<const Timeline*>> steps;
  for (const Timeline& timeline : timelines) {
    TANDEM_CHECK(
        timeline.program == program.name && timeline.instructions.size() == program.instructions.size(),
        "the timelines are of this program");
    steps[timeline.step].push_back(&timeline);
  }
  return steps;
}

}  // namespace

std::vector<MeasuredTime> MeasureTimes(const Outline& outline, const Program& program,
                                       const Workload& workload, absl::Span<const Timeline> timelines) {
  const auto steps = RanksByStep(program, timelines);

  using Key = std::tuple<std::string, double, double, double>;
  std::map<Key, Samples> kinds;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!RunsSomething(instruction.opcode)) {
      continue;
    }
    const Work work = WorkOf(outline, program, instruction, workload);
    const std::string kind = KindOf(outline, program, instruction);
    Samples& samples = kinds[{kind, work.flops, work.bytes, work.link_bytes}];
    samples.time = {.kind = kind, .work = work};
    for (const auto& [step, ranks] : steps) {
      double least = -1;
      for (const Timeline* timeline : ranks) {
        const InstructionTime& time = timeline->instructions[i];
        const bool slowed = !timeline->serialized && time.cpu_ns >= 0 && work.ranks == 1;
        const double seconds = Seconds(slowed ? time.cpu_ns : time.end_ns - time.start_ns);
        if (time.cpu_ns >= 0) {
          samples.cpu_seconds.push_back(Seconds(time.cpu_ns));
        }
        if (work.ranks == 1) {
          samples.seconds.push_back(seconds);
        } else if (least < 0 || seconds < least) {
          least = seconds;
        }
      }
      if (least >= 0) {
        samples.seconds.push_back(least);
      }
    }
  }

  std::vector<MeasuredTime> result;
  for (auto& [key, samples] : kinds) {
    if (samples.seconds.empty()) {
      continue;
    }
    samples.time.seconds = Mean(samples.seconds);
    samples.time.cpu_seconds = Mean(samples.cpu_seconds);
    samples.time.samples = static_cast<int64_t>(samples.seconds.size());
    result.push_back(std::move(samples.time));
  }
  return result;
}

Gaps MeasureGaps(const Program& program, absl::Span<const Timeline> timelines) {
  std::vector<double> gaps;
  std::vector<double> wakes;
  for (const Timeline& timeline : timelines) {
    const std::vector<int> bound_by = BoundBy(program, timeline);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (bound_by[i] < 0 || !RunsSomething(instruction.opcode) ||
          program.streams[instruction.stream].copies_host) {
        continue;
      }
      const int64_t passed = timeline.instructions[i].start_ns - timeline.instructions[bound_by[i]].end_ns;
      const bool own = program.instructions[bound_by[i]].stream == instruction.stream;
      (own ? gaps : wakes).push_back(Seconds(std::max<int64_t>(0, passed)));
    }
  }
  return {.gap_seconds = Mean(gaps), .wake_seconds = Mean(wakes)};
}

double MeasureSkew(const Program& program, absl::Span<const Timeline> timelines) {
  std::vector<double> skews;
  for (const auto& [step, ranks] : RanksByStep(program, timelines)) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].communicator < 0) {
        continue;
      }
      double least = std::numeric_limits<double>::infinity();
      double sum = 0;
      for (const Timeline* timeline : ranks) {
        const InstructionTime& time = timeline->instructions[i];
        const double seconds = Seconds(time.end_ns - time.start_ns);
        least = std::min(least, seconds);
        sum += seconds;
      }
      skews.push_back(sum / static_cast<double>(ranks.size()) - least);
    }
  }
  return Median(std::move(skews));
}

}  // namespace tandem::schedules
