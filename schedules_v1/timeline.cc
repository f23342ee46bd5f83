#include "schedules_v1/timeline.h"

#include <algorithm>
#include <utility>

#include "platform/check.h"

namespace tandem::schedules_v1 {
namespace {

void CheckSizes(const Program& program, const Timeline& timeline) {
  TANDEM_CHECK(timeline.instructions.size() == program.instructions.size(),
               "a timeline has a time for every instruction of its program");
}

// The union of the times in which a stream that `wanted` names works, ascending and disjoint.
template <typename Wanted>
std::vector<Interval> WorkingTimes(const Program& program, const Timeline& timeline, const Wanted& wanted) {
  std::vector<Interval> intervals;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const InstructionTime& time = timeline.instructions[i];
    if (time.end_ns > time.start_ns && wanted(program.instructions[i].stream)) {
      intervals.emplace_back(time.start_ns, time.end_ns);
    }
  }
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> merged;
  for (const Interval& interval : intervals) {
    if (!merged.empty() && interval.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, interval.second);
    } else {
      merged.push_back(interval);
    }
  }
  return merged;
}

// An instruction that runs something: Release and Reshard only mark a position.
bool Works(const InstructionTime& time) { return time.end_ns > time.start_ns; }

// The instruction, on another stream, that ended last of all that `i` depends on. What takes no time is
// looked through: a Release that waited makes the next instruction of its stream late.
int ForeignCause(const Program& program, const Timeline& timeline, const std::vector<int>& bound_by, int i) {
  const StreamKind stream = program.instructions[i].stream;
  int cause = bound_by[i];
  while (cause >= 0 && program.instructions[cause].stream == stream && !Works(timeline.instructions[cause])) {
    cause = bound_by[cause];
  }
  return cause >= 0 && program.instructions[cause].stream != stream ? cause : -1;
}

}  // namespace

int64_t StepNanoseconds(const Timeline& timeline) {
  int64_t end = 0;
  for (const InstructionTime& time : timeline.instructions) {
    end = std::max(end, time.end_ns);
  }
  return end;
}

std::array<int64_t, kNumStreams> BusyNanoseconds(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  std::array<int64_t, kNumStreams> busy{};
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    busy[static_cast<int>(program.instructions[i].stream)] +=
        timeline.instructions[i].end_ns - timeline.instructions[i].start_ns;
  }
  return busy;
}

std::vector<Stall> ComputeStalls(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  const std::vector<int> bound_by = BoundBy(program, timeline);
  const std::vector<Interval> communication =
      WorkingTimes(program, timeline, [](StreamKind kind) { return kind != StreamKind::kCompute; });
  size_t next = 0;  // first interval that may reach into the gap: gaps ascend
  const auto exposed = [&](int64_t start, int64_t end) {
    int64_t sum = 0;
    while (next < communication.size() && communication[next].second <= start) {
      ++next;
    }
    for (size_t k = next; k < communication.size() && communication[k].first < end; ++k) {
      sum += std::min(end, communication[k].second) - std::max(start, communication[k].first);
    }
    return sum;
  };

  std::vector<Stall> stalls;
  int64_t free_since = 0;
  int last = -1;  // instruction that ended last of all
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const InstructionTime& time = timeline.instructions[i];
    if (last < 0 || time.end_ns > timeline.instructions[last].end_ns) {
      last = i;
    }
    if (program.instructions[i].stream != StreamKind::kCompute || !Works(time)) {
      continue;
    }
    if (time.start_ns > free_since) {
      stalls.push_back({.instruction = i,
                        .cause = ForeignCause(program, timeline, bound_by, i),
                        .start_ns = free_since,
                        .end_ns = time.start_ns,
                        .exposed_ns = exposed(free_since, time.start_ns)});
    }
    free_since = time.end_ns;
  }
  const int64_t end = StepNanoseconds(timeline);
  if (end > free_since) {
    stalls.push_back(
        {.cause = last, .start_ns = free_since, .end_ns = end, .exposed_ns = exposed(free_since, end)});
  }
  return stalls;
}

std::vector<Interval> ExposedTimes(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  const auto is_compute = [](StreamKind kind) { return kind == StreamKind::kCompute; };
  const std::vector<Interval> compute = WorkingTimes(program, timeline, is_compute);
  std::vector<Interval> exposed;
  size_t next = 0;  // first time of compute that may end after what is left of the communication
  for (Interval left : WorkingTimes(program, timeline, [&](StreamKind kind) { return !is_compute(kind); })) {
    while (next < compute.size() && compute[next].second <= left.first) {
      ++next;
    }
    for (size_t k = next; k < compute.size() && compute[k].first < left.second; ++k) {
      if (compute[k].first > left.first) {
        exposed.emplace_back(left.first, compute[k].first);
      }
      left.first = std::min(left.second, compute[k].second);
    }
    if (left.first < left.second) {
      exposed.push_back(left);
    }
  }
  return exposed;
}

int64_t ExposedCommunication(const Program& program, const Timeline& timeline) {
  int64_t sum = 0;
  for (const auto& [start, end] : ExposedTimes(program, timeline)) {
    sum += end - start;
  }
  return sum;
}

std::map<Opcode, int64_t> StallsByOpcode(const Program& program, const Timeline& timeline) {
  std::map<Opcode, int64_t> result;
  for (const Stall& stall : ComputeStalls(program, timeline)) {
    for (int i = stall.cause; i >= 0 && timeline.instructions[stall.cause].end_ns > stall.start_ns; --i) {
      if (program.instructions[i].stream != program.instructions[stall.cause].stream) {
        continue;
      }
      const InstructionTime& time = timeline.instructions[i];
      if (time.end_ns <= stall.start_ns) {
        break;
      }
      const int64_t during = std::min(time.end_ns, stall.end_ns) - std::max(time.start_ns, stall.start_ns);
      if (during > 0) {
        result[program.instructions[i].opcode] += during;
      }
    }
  }
  return result;
}

std::vector<int> BoundBy(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  std::array<int, kNumStreams> newest;
  newest.fill(-1);
  std::vector<int> bound_by;
  bound_by.reserve(program.instructions.size());
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    int& before = newest[static_cast<int>(instruction.stream)];
    int bound = before;
    for (const int wait : instruction.waits) {
      if (bound < 0 || timeline.instructions[wait].end_ns > timeline.instructions[bound].end_ns) {
        bound = wait;
      }
    }
    bound_by.push_back(bound);
    before = i;
  }
  return bound_by;
}

std::vector<int> CriticalPath(const Program& program, const Timeline& timeline) {
  const std::vector<int> bound_by = BoundBy(program, timeline);
  int last = -1;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    if (last < 0 || timeline.instructions[i].end_ns > timeline.instructions[last].end_ns) {
      last = i;
    }
  }
  std::vector<int> path;
  for (int i = last; i >= 0; i = bound_by[i]) {
    if (Works(timeline.instructions[i])) {
      path.push_back(i);
    }
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int64_t> IssueTimes(const Timeline& timeline) {
  std::vector<int64_t> times;
  times.reserve(timeline.instructions.size());
  for (const InstructionTime& time : timeline.instructions) {
    times.push_back(times.empty() ? time.start_ns : std::max(times.back(), time.start_ns));
  }
  return times;
}

}  // namespace tandem::schedules_v1
