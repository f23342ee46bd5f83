// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// When the instructions of one run of a program ran on one rank, measured or simulated alike.

// In nanoseconds from the run's start: the moment at which all streams of the former run but those that copy
// to and from the host had ended. Copies to the device may come before it, at negative times, and copies to
// the host after the run's end.
struct InstructionTime {
  int64_t start_ns = 0;  // after its waits and after the instruction before it on its stream
  int64_t end_ns = 0;    // of its work on the stream; what only the host does (HostWait) has end == start
  // Processor time that it took, of every thread that worked for it; -1: not known, or no processor's work
  // (a GPU, a simulation).
  int64_t cpu_ns = -1;
  bool operator==(const InstructionTime&) const = default;
};

struct Timeline {
  std::string program;  // Program::name
  int rank = 0;
  int64_t step = 0;  // from 1; 0: no step (a simulation, a validation before the first)
  // The instructions ran one at a time, in issue order, so that none slowed another: what a profile is
  // measured from (measurement.h).
  bool serialized = false;
  std::vector<InstructionTime> instructions;  // by index in the program
};

// The stream that node passes run on unless they say otherwise: "compute". -1: the program has none.
StreamId ComputeStream(const Program& program);

// Whether a stream runs passes that do not communicate: "compute" and, where weight halves have a stream of
// their own, "weights".
bool Computes(const Program& program, StreamId stream);

// Whether a stream communicates between ranks: all others but those that copy to and from the host.
bool Communicates(const Program& program, StreamId stream);

// What follows reads a timeline beside its program. Require a time for every instruction of the program, with
// start <= end, and on each stream in issue order.

// From the run's start to the last end on a stream that does not copy to or from the host, which is when the
// next run starts; 0 for an empty program.
int64_t StepNanoseconds(const Program& program, const Timeline& timeline);

// Per stream: how long an instruction of it ran.
std::vector<int64_t> BusyNanoseconds(const Program& program, const Timeline& timeline);

// Why compute stood still: the instruction for which it waited, and for how long.
struct Stall {
  int instruction = -1;  // compute instruction that started late; -1: compute was done before the step was
  int cause = -1;  // instruction of another stream whose end it waited for; of the last gap, what ended last
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // The exposed part of it: how long a communication stream worked while no stream computed.
  int64_t exposed_ns = 0;
};

// In order of time: every gap of the compute stream up to the step's end. Gaps with no other cause (the host
// was late) have cause -1.
std::vector<Stall> ComputeStalls(const Program& program, const Timeline& timeline);

using Interval = std::pair<int64_t, int64_t>;  // [start, end), nanoseconds

// When a communication stream works and none that computes, ascending and disjoint.
std::vector<Interval> ExposedTimes(const Program& program, const Timeline& timeline);

// How long a stream that computes works.
int64_t ComputingTime(const Program& program, const Timeline& timeline);

// What the issuing thread waits for: each HostWait from the start of the exchange that writes what it reads
// until it has ended; nothing is issued meanwhile.
struct HostWaits {
  int count = 0;
  int64_t waited_ns = 0;   // all of them
  int64_t covered_ns = 0;  // of it, while compute that was issued before works
  bool operator==(const HostWaits&) const = default;
};
HostWaits HostWaitsOf(const Program& program, const Timeline& timeline);

// How long communication is exposed.
int64_t ExposedCommunication(const Program& program, const Timeline& timeline);

// By stream: how long it communicates and none computes. Streams may do so at the same time.
std::vector<int64_t> ExposedByStream(const Program& program, const Timeline& timeline);

// What compute waited for: instructions of one kind on one stream.
struct StallCause {
  StreamId stream = -1;
  Opcode opcode = Opcode::kForward;
  auto operator<=>(const StallCause&) const = default;
};

// How long the instructions that the compute stream waited for, or that these queued behind, worked on their
// stream during the stalls.
std::map<StallCause, int64_t> StallsByCause(const Program& program, const Timeline& timeline);

// The instruction that each start was bound by: of the one before it on its stream, those that it waits for
// and the last HostWait issued before it, the one that ended last (of equals, that of its own stream); -1:
// none, it could start at once.
std::vector<int> BoundBy(const Program& program, const Timeline& timeline);

// From an instruction that nothing bound to the one that the step ends with, each bound by the one before it.
// Instructions without duration are left out.
std::vector<int> CriticalPath(const Program& program, const Timeline& timeline);

}  // namespace tandem::schedules
