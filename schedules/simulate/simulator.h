// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/device_profile.h"
#include "schedules/simulate/timeline.h"

namespace tandem::schedules {

// The latest time in a simulation. Later times are shown as this one.
inline constexpr int64_t kLongestNanoseconds = int64_t{1} << 61;  // 73 years

// The result of simulating a program on a device: when each instruction would run.
struct Simulation {
  Timeline timeline;
  // The numbers of instructions by the source of their time (CostModel::Of): measured with the same work,
  // scaled from a measurement with other work, and estimated from rates.
  int measured = 0;
  int scaled = 0;
  int estimated = 0;
  // By stream: the time that its instructions would take if no other stream worked. BusyNanoseconds of the
  // timeline exceeds it by as much as other streams slow this one down.
  std::vector<int64_t> undisturbed_ns;
};

// Simulates a program. Streams run their instructions in order. An instruction starts when the previous one
// on its stream and those that it waits for have ended, and then gap_seconds (after its own stream) or
// wake_seconds (after another) have passed. A collective of several ranks takes skew_seconds longer, in which
// it needs no processor. While several streams work,
// * they share DeviceProfile::cores. If an instruction needs a processor for a share s of its time, and all
//   instructions together need p processors but have only c < p, it takes 1 - s + s · p / c times as long.
// * compute beside a communication stream runs at 1 - compute_slowdown of its speed.
// * if cores is 0, each stream has an engine of its own, except that the streams that compute share one.
// An instruction issued after a HostWait starts after it, whatever its stream. Apart from that, the host
// issues every instruction in time. Every rank of a group runs the same program with shards of the same size,
// so one represents all.
//
// The program runs twice in a row. The host issues the second run ahead of time, so its copies begin during
// the first run, and everything else when the first run has ended. The result is the second run, which is a
// step in the middle of a job.
//
// Requires a program that the check accepts, and a profile with a rate for its compute types. The time is
// linear in the number of instructions.
Simulation Simulate(const Outline& outline, const Program& program, const Workload& workload,
                    const DeviceProfile& profile);

}  // namespace tandem::schedules
