// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::cli {

// What workers on one machine have for ranks, in words: "1 worker with 2 CPU slots", "2 workers with 1 CPU
// slot each", "1 worker with 8 GPU slots and 1 CPU slot". Each has its own CPU slots; the GPUs, of which the
// machine has `gpus`, are offered by all of them.
std::string WorkersText(int workers, int cpu_slots, int gpus);

}  // namespace tandem::cli
