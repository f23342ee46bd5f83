// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/workers_text.h"

#include "absl/strings/str_cat.h"

namespace tandem::cli {
namespace {

std::string Counted(int count, const char* thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

}  // namespace

std::string WorkersText(int workers, int cpu_slots, int gpus) {
  const std::string who = Counted(workers, "worker");
  const std::string cpu = Counted(cpu_slots, "CPU slot");
  const std::string gpu = Counted(gpus, "GPU slot");
  if (workers == 1) {
    return absl::StrCat(who, " with ", gpus > 0 ? absl::StrCat(gpu, " and ") : "", cpu);
  }
  return absl::StrCat(who, " with ", cpu, " each",
                      gpus > 0 ? absl::StrCat(", and ", gpu, " that they share") : "");
}

}  // namespace tandem::cli
