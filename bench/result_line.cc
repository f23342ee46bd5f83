// SPDX-License-Identifier: Apache-2.0
#include "bench/result_line.h"

#include <fstream>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ops/cpu/best_instruction_set.h"
#include "platform/build_info.h"
#include "worker/gpus.h"

namespace tandem::bench {

// A bench whose trainers ran on GPUs still prints what it measured where nvidia-smi does not answer.
std::string GpuName() {
  const absl::StatusOr<std::vector<v1::Slot>> gpus = worker::FindGpus();
  if (!gpus.ok()) {
    return absl::StrCat("a GPU whose name is not known: ", gpus.status().message());
  }
  return gpus->empty() ? "a GPU whose name is not known: nvidia-smi names none" : gpus->front().name();
}

std::string ProcessorName() {
  std::string name = "a processor whose name is not known";  // Linux does not name those of ARM
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) {
      name = line.substr(line.find(':') + 1);
      absl::StripAsciiWhitespace(&name);
      break;
    }
  }
  return absl::StrCat(name, ", ", ops::cpu::ToText(ops::cpu::BestInstructionSet()));
}

std::string ResultLine(nlohmann::ordered_json result, const std::string& machine) {
  const std::vector<std::string> build = absl::StrSplit(platform::BuildVersion(), absl::MaxSplits('+', 1));
  result["machine"] = machine;
  result["commit"] = build.back();
  result["date"] = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  return result.dump();
}

}  // namespace tandem::bench
