// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "platform/clock.h"

namespace tandem::platform {

// CLOCK_BOOTTIME, from the epoch at the machine's start: for how long something has been away, since it runs
// on while the machine sleeps, and SteadyClock does not.
const Clock& BootClock();

}  // namespace tandem::platform
