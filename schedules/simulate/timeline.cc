// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/timeline.h"

#include <algorithm>
#include <utility>

#include "platform/check.h"

namespace tandem::schedules {
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

std::vector<Interval> CommunicationTimes(const Program& program, const Timeline& timeline) {
  return WorkingTimes(program, timeline, [&](StreamId stream) { return Communicates(program, stream); });
}

// What of `times` lies outside of all `others`; both ascending and disjoint, and so is the result.
std::vector<Interval> Without(const std::vector<Interval>& times, const std::vector<Interval>& others) {
  std::vector<Interval> result;
  size_t next = 0;  // first of the others that may end after what is left
  for (Interval left : times) {
    while (next < others.size() && others[next].second <= left.first) {
      ++next;
    }
    for (size_t k = next; k < others.size() && others[k].first < left.second; ++k) {
      if (others[k].first > left.first) {
        result.emplace_back(left.first, others[k].first);
      }
      left.first = std::min(left.second, others[k].second);
    }
    if (left.first < left.second) {
      result.push_back(left);
    }
  }
  return result;
}

int64_t Length(const std::vector<Interval>& times) {
  int64_t sum = 0;
  for (const auto& [start, end] : times) {
    sum += end - start;
  }
  return sum;
}

std::vector<Interval> ComputingTimes(const Program& program, const Timeline& timeline) {
  return WorkingTimes(program, timeline, [&](StreamId stream) { return Computes(program, stream); });
}

bool Works(const InstructionTime& time) { return time.end_ns > time.start_ns; }

// The instruction, on another stream, that ended last of all that `i` depends on. What takes no time is
// looked through: a HostWait that waited makes the next instruction of its stream late.
int ForeignCause(const Program& program, const Timeline& timeline, const std::vector<int>& bound_by, int i) {
  const StreamId stream = program.instructions[i].stream;
  int cause = bound_by[i];
  while (cause >= 0 && program.instructions[cause].stream == stream && !Works(timeline.instructions[cause])) {
    cause = bound_by[cause];
  }
  return cause >= 0 && program.instructions[cause].stream != stream ? cause : -1;
}

// Which of two instructions ended later, the first of equals; -1 ended before everything.
int Later(const Timeline& timeline, int a, int b) {
  return b >= 0 && (a < 0 || timeline.instructions[b].end_ns > timeline.instructions[a].end_ns) ? b : a;
}

// What the step ends with; -1: no instruction but copies to and from the host.
int LastInstruction(const Program& program, const Timeline& timeline) {
  int last = -1;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    if (!program.streams[program.instructions[i].stream].copies_host &&
        (last < 0 || timeline.instructions[i].end_ns > timeline.instructions[last].end_ns)) {
      last = i;
    }
  }
  return last;
}

}  // namespace

StreamId ComputeStream(const Program& program) {
  for (size_t s = 0; s < program.streams.size(); ++s) {
    if (program.streams[s].name == "compute") {
      return static_cast<StreamId>(s);
    }
  }
  return -1;
}

bool Computes(const Program& program, StreamId stream) {
  return stream == ComputeStream(program) || program.streams[stream].name == "weights";
}

bool Communicates(const Program& program, StreamId stream) {
  return !Computes(program, stream) && !program.streams[stream].copies_host;
}

int64_t StepNanoseconds(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  const int last = LastInstruction(program, timeline);
  return last < 0 ? 0 : timeline.instructions[last].end_ns;
}

std::vector<int64_t> BusyNanoseconds(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  std::vector<int64_t> busy(program.streams.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    busy[program.instructions[i].stream] +=
        timeline.instructions[i].end_ns - timeline.instructions[i].start_ns;
  }
  return busy;
}

std::vector<Stall> ComputeStalls(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  const std::vector<int> bound_by = BoundBy(program, timeline);
  const StreamId compute = ComputeStream(program);
  const std::vector<Interval> communication =
      Without(CommunicationTimes(program, timeline), WorkingTimes(program, timeline, [&](StreamId stream) {
                return stream != compute && Computes(program, stream);
              }));
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
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const InstructionTime& time = timeline.instructions[i];
    if (program.instructions[i].stream != compute || !Works(time)) {
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
  const int64_t end = StepNanoseconds(program, timeline);
  if (end > free_since) {
    stalls.push_back({.cause = LastInstruction(program, timeline),
                      .start_ns = free_since,
                      .end_ns = end,
                      .exposed_ns = exposed(free_since, end)});
  }
  return stalls;
}

std::vector<Interval> ExposedTimes(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  return Without(CommunicationTimes(program, timeline), ComputingTimes(program, timeline));
}

int64_t ComputingTime(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  return Length(ComputingTimes(program, timeline));
}

HostWaits HostWaitsOf(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  const std::vector<Interval> computing = ComputingTimes(program, timeline);
  HostWaits waits;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.opcode != Opcode::kHostWait) {
      continue;
    }
    int last = -1;
    for (const Wait& wait : instruction.waits) {
      last = Later(timeline, last, wait.instruction);
    }
    ++waits.count;
    if (last >= 0) {
      const Interval trip(timeline.instructions[last].start_ns, timeline.instructions[i].end_ns);
      const int64_t length = std::max<int64_t>(0, trip.second - trip.first);
      waits.waited_ns += length;
      waits.covered_ns += length - Length(Without({trip}, computing));
    }
  }
  return waits;
}

int64_t ExposedCommunication(const Program& program, const Timeline& timeline) {
  return Length(ExposedTimes(program, timeline));
}

std::vector<int64_t> ExposedByStream(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  const std::vector<Interval> computing = ComputingTimes(program, timeline);
  std::vector<int64_t> exposed;
  for (size_t s = 0; s < program.streams.size(); ++s) {
    const auto stream = static_cast<StreamId>(s);
    exposed.push_back(Communicates(program, stream)
                          ? Length(Without(WorkingTimes(program, timeline,
                                                        [stream](StreamId other) { return other == stream; }),
                                           computing))
                          : 0);
  }
  return exposed;
}

std::map<StallCause, int64_t> StallsByCause(const Program& program, const Timeline& timeline) {
  std::map<StallCause, int64_t> result;
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
        result[{program.instructions[i].stream, program.instructions[i].opcode}] += during;
      }
    }
  }
  return result;
}

std::vector<int> BoundBy(const Program& program, const Timeline& timeline) {
  CheckSizes(program, timeline);
  std::vector<int> newest(program.streams.size(), -1);
  int host_wait = -1;  // the last one that was issued
  std::vector<int> bound_by;
  bound_by.reserve(program.instructions.size());
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    int& before = newest[instruction.stream];
    int bound = before;
    for (const Wait& wait : instruction.waits) {
      bound = Later(timeline, bound, wait.instruction);
    }
    bound = Later(timeline, bound, host_wait);
    // The run itself started later than a copy that ended before it.
    const bool before_run = bound >= 0 && timeline.instructions[bound].end_ns < 0;
    bound_by.push_back(before_run && !program.streams[instruction.stream].copies_host ? -1 : bound);
    before = i;
    host_wait = instruction.opcode == Opcode::kHostWait ? i : host_wait;
  }
  return bound_by;
}

std::vector<int> CriticalPath(const Program& program, const Timeline& timeline) {
  const std::vector<int> bound_by = BoundBy(program, timeline);
  std::vector<int> path;
  // What came before the run's start bound nothing in it.
  for (int i = LastInstruction(program, timeline); i >= 0 && timeline.instructions[i].end_ns > 0;
       i = bound_by[i]) {
    if (Works(timeline.instructions[i])) {
      path.push_back(i);
    }
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace tandem::schedules
