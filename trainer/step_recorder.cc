// SPDX-License-Identifier: Apache-2.0
#include "trainer/step_recorder.h"

#include <sched.h>
#include <time.h>

#include "device/device.h"
#include "schedules/program/program.h"

namespace tandem::trainer {
namespace {

int64_t Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

StepRecorder::StepRecorder(device::Device& device, const schedules::Program& program, int64_t step,
                           Recording recording)
    : device_(device),
      program_(program),
      step_(step),
      serialized_(recording == Recording::kSerialized),
      start_unix_ns_(Nanoseconds(CLOCK_REALTIME)),
      times_(program.instructions.size()) {}

StepRecorder::~StepRecorder() = default;

void StepRecorder::MarkOrigin() { origin_ = device_.MarkTime(); }

void StepRecorder::Run(int instruction, const std::function<void()>& run) {
  const schedules::Instruction& what = program_.instructions[instruction];
  Times& times = times_[instruction];
  // Threads of the communicator take part in a collective. When one instruction runs at a time, nothing else
  // of this rank runs beside it, and the process's time is its time. On CUDA the host only issues.
  const bool knows_cpu = device_.finishes_in_calls() && (serialized_ || what.communicator < 0);
  const clockid_t cpu = serialized_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
  const int64_t cpu_before = Nanoseconds(cpu);
  times.start = device_.MarkTime();
  run();
  times.end = device_.MarkTime();
  times.cpu_ns = knows_cpu ? Nanoseconds(cpu) - cpu_before : -1;
}

v1::StepTimeline StepRecorder::Take() const {
  v1::StepTimeline timeline;
  timeline.set_program(program_.name);
  timeline.set_step(step_);
  timeline.set_serialized(serialized_);
  timeline.set_start_unix_ns(start_unix_ns_);
  for (const Times& times : times_) {
    timeline.add_start_ns(times.start->Since(*origin_));
    timeline.add_end_ns(times.end->Since(*origin_));
    timeline.add_cpu_ns(times.cpu_ns);
  }
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof processors, &processors) == 0) {
    timeline.set_processors(CPU_COUNT(&processors));
  }
  return timeline;
}

}  // namespace tandem::trainer
