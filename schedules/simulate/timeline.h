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

// The times at which the instructions of one run of a program ran on one rank, either measured or simulated.

// Nanoseconds from the run's start, which is the moment at which all streams of the former run except those
// that copy to and from the host had ended. Copies to the device may come before it, at negative times, and
// copies to the host after the run's end.
struct InstructionTime {
  int64_t start_ns = 0;  // after its waits and after the instruction before it on its stream
  int64_t end_ns = 0;    // end of its work on the stream; equal to start if only the host does it (HostWait)
  // Processor time of all threads that worked for it; -1: unknown, or not a processor's work (a GPU, a
  // simulation).
  int64_t cpu_ns = -1;
  bool operator==(const InstructionTime&) const = default;
};

struct Timeline {
  std::string program;  // Program::name
  int rank = 0;
  int64_t step = 0;  // from 1; 0: not in a step (a simulation, a validation before the first step)
  // If true, the instructions ran one at a time, in issue order, so that none slowed down another.
  // MeasureTimes (measurement.h) is exact only for such runs; MeasureGaps and MeasureSkew need others.
  bool serialized = false;
  std::vector<InstructionTime> instructions;  // by index in the program
};

// The stream that node passes run on unless they name another: "compute". -1: the program has none.
StreamId ComputeStream(const Program& program);

// Whether a stream runs passes that do not communicate: "compute", and "weights" if weight halves have a
// stream of their own.
bool Computes(const Program& program, StreamId stream);

// Whether a stream communicates between ranks. All streams do, except those that compute and those that copy
// to and from the host.
bool Communicates(const Program& program, StreamId stream);

// The functions below read a timeline together with its program. They require a time for every instruction of
// the program, with start <= end, and in issue order on each stream.

// The time from the run's start to the last end on a stream that does not copy to or from the host, which is
// when the next run starts; 0 for an empty program.
int64_t StepNanoseconds(const Program& program, const Timeline& timeline);

// By stream, how long it ran instructions.
std::vector<int64_t> BusyNanoseconds(const Program& program, const Timeline& timeline);

// A time in which the compute stream did nothing: its length, and the instruction that it waited for.
struct Stall {
  int instruction = -1;  // compute instruction that started late; -1: compute had ended before the step did
  // The instruction of another stream for whose end `instruction` waited; if that is -1, the last instruction
  // of the step. -1: none, the host was late.
  int cause = -1;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // The exposed part of the stall: how long a communication stream worked while no stream computed.
  int64_t exposed_ns = 0;
};

// Every gap of the compute stream up to the step's end, in order of time.
std::vector<Stall> ComputeStalls(const Program& program, const Timeline& timeline);

using Interval = std::pair<int64_t, int64_t>;  // [start, end), nanoseconds

// The times at which a communication stream works and no stream computes, ascending and disjoint.
std::vector<Interval> ExposedTimes(const Program& program, const Timeline& timeline);

// How long at least one stream computes.
int64_t ComputingTime(const Program& program, const Timeline& timeline);

// How long the issuing thread waits in HostWaits and issues nothing. A HostWait counts from the start of the
// instruction that it waits for (the exchange that brings the value) to its own end.
struct HostWaits {
  int count = 0;
  int64_t waited_ns = 0;   // the sum over all HostWaits
  int64_t covered_ns = 0;  // the part during which compute that was issued earlier works
  bool operator==(const HostWaits&) const = default;
};
HostWaits HostWaitsOf(const Program& program, const Timeline& timeline);

// How long communication is exposed.
int64_t ExposedCommunication(const Program& program, const Timeline& timeline);

// By stream, how long it communicates while no stream computes. Several streams may do so at the same time.
std::vector<int64_t> ExposedByStream(const Program& program, const Timeline& timeline);

// A cause of stalls: instructions of one kind on one stream.
struct StallCause {
  StreamId stream = -1;
  Opcode opcode = Opcode::kForward;
  auto operator<=>(const StallCause&) const = default;
};

// By cause, the time of all stalls. In each stall this is how long Stall::cause, and the instructions before
// it on its stream, worked during the stall.
std::map<StallCause, int64_t> StallsByCause(const Program& program, const Timeline& timeline);

// For each instruction, the one that determined its start. Of the previous one on its stream, those that it
// waits for, and the last HostWait issued before it, this is the one that ended last (if several did, that of
// its own stream). -1: there is none, or it ended before the run's start (except on streams that copy to or
// from the host).
std::vector<int> BoundBy(const Program& program, const Timeline& timeline);

// A chain of instructions that ends with the last one of the step, in which each determined the start of the
// next (BoundBy). Nothing within the step determined the start of the first. Instructions without duration
// are left out.
std::vector<int> CriticalPath(const Program& program, const Timeline& timeline);

}  // namespace tandem::schedules
