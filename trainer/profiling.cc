// SPDX-License-Identifier: Apache-2.0
#include "trainer/profiling.h"

#include <sched.h>
#include <time.h>

#include "device/device.h"
#include "schedules/program/program.h"

namespace tandem::trainer {
namespace {

// In a number: id, 5 bits of steps, 1 of serialized. 46 + 6 bits fit into a double's 53.
constexpr uint64_t kStepsFactor = 2;
constexpr uint64_t kIdFactor = 64;
static_assert(ProfileSteps::kMaxSteps < 32);
static_assert(ProfileSteps::kMaxId < (uint64_t{1} << 53) / kIdFactor);

}  // namespace

double ProfileSteps::ToNumber() const {
  return id == 0 ? 0
                 : static_cast<double>(id * kIdFactor + static_cast<uint64_t>(steps) * kStepsFactor +
                                       (serialized ? 1 : 0));
}

ProfileSteps ProfileSteps::FromNumber(double number) {
  const auto bits = static_cast<uint64_t>(number);
  return {.id = bits / kIdFactor,
          .steps = static_cast<int>(bits % kIdFactor / kStepsFactor),
          .serialized = bits % kStepsFactor != 0};
}

Recording ProfileQueue::next() const {
  if (queue_.empty()) {
    return Recording::kNone;
  }
  return done_ < queue_.front().steps ? Recording::kOverlapped : Recording::kSerialized;
}

ProfileQueue::Recorded ProfileQueue::Advance() {
  const ProfileSteps& first = queue_.front();
  Recorded recorded{.id = first.id, .last = ++done_ == first.steps * (first.serialized ? 2 : 1)};
  if (recorded.last) {
    queue_.pop_front();
    done_ = 0;
  }
  return recorded;
}

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
