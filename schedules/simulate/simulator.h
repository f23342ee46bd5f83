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

// Where a simulation's times end: what would come later is shown as this.
inline constexpr int64_t kLongestNanoseconds = int64_t{1} << 61;  // 73 years

// A program run on paper: when each instruction would run on a device, without the device.
struct Simulation {
  Timeline timeline;
  // Instructions whose time was measured as it stands, measured with other sizes, and estimated from rates.
  int measured = 0;
  int scaled = 0;
  int estimated = 0;
  // Per stream: what its instructions would take if no other stream worked; the timeline's busy time is
  // longer by how much they slowed each other.
  std::vector<int64_t> undisturbed_ns;
};

// Streams run their instructions in order; one starts when the one before it on its stream and those that it
// waits for have ended, and gap_seconds or wake_seconds have passed. While several streams work,
//   * they share DeviceProfile::cores: what needs a processor for a share s of its time, while needs for p
//     processors meet c < p of them, takes 1 - s + s · p / c as long
//   * a collective of several ranks takes skew_seconds longer, without needing a processor
//   * compute beside a communication stream runs at 1 - compute_slowdown of its speed
//   * where every stream has an engine of its own (cores 0), those that compute share one
// What is issued after a HostWait starts after it, whatever its stream. Otherwise the host is never late.
// Every rank of a group runs the same program with shards of the same size, so one stands for all.
//
// The program runs twice in a row, as the host issues it, which is a run ahead: the copies of the second run
// begin during the first, all else when the first has ended. The second run is what is returned, so a step in
// the middle of a job.
//
// Requires a program that the check accepts and a compute type that the profile has. Linear in the number
// of instructions.
Simulation Simulate(const Outline& outline, const Program& program, const Workload& workload,
                    const DeviceProfile& profile);

}  // namespace tandem::schedules
