// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/build/schedule.h"

namespace tandem::schedules {

// 1F1B (PipeDream-flush): warmup forwards, then one forward and one backward in turn, then the backwards that
// are left.
PassList OneFOneB(const Outline& outline, int num_stages, int num_microbatches);

}  // namespace tandem::schedules
