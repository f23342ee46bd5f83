// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/workers_text.h"

#include "absl/strings/str_cat.h"
#include "cli/terminal/number_text.h"
#include "platform/counted_text.h"

namespace tandem::cli {
std::string WorkersText(int workers, int cpu_slots, int gpus) {
  const std::string who = platform::CountedText(workers, "worker");
  const std::string cpu = platform::CountedText(cpu_slots, "CPU slot");
  const std::string gpu = platform::CountedText(gpus, "GPU slot");
  if (workers == 1) {
    return absl::StrCat(who, " with ", gpus > 0 ? absl::StrCat(gpu, " and ") : "", cpu);
  }
  return absl::StrCat(who, " with ", cpu, " each",
                      gpus > 0 ? absl::StrCat(", and ", gpu, " that they share") : "");
}

}  // namespace tandem::cli
