// SPDX-License-Identifier: Apache-2.0
// Measures steps per second of a job on real tandem-trainer processes, without the daemons around them:
//   tandem-bench-step JOB.yaml PATH_OF_TANDEM_TRAINER WARMUP_STEPS
// Prints one JSON object. The time runs from the report of the last warm-up step to that of the last step.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "bench/read_job.h"
#include "bench/result_line.h"
#include "nlohmann/json.hpp"
#include "platform/build_info.h"
#include "tests/trainer/fake_daemon.h"

namespace {

using tandem::v1::FromTrainer;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: tandem-bench-step JOB.yaml PATH_OF_TANDEM_TRAINER WARMUP_STEPS\n");
    return 2;
  }
  const tandem::v1::JobSpec resolved = tandem::bench::ReadJobOrExit(argv[1]);
  const int64_t warmup = std::atoll(argv[3]);
  const int64_t steps = resolved.training().steps();

  tandem::trainer::FakeDaemon daemon(argv[2], tandem::trainer::AssignmentOf(resolved),
                                     tandem::platform::BuildVersion());
  for (int rank = 0; rank < resolved.parallelism().ranks(); ++rank) {
    daemon.StartRank(rank);
  }
  const auto wait_for = [&](int64_t step) {
    const auto report = daemon.WaitFor(
        0, [step](const FromTrainer& m) { return m.has_report() && m.report().step() == step; },
        absl::Minutes(10));
    if (!report.has_value()) {
      std::fprintf(stderr, "rank 0 ended before step %ld\n", static_cast<long>(step));
      for (const FromTrainer& said : daemon.MessagesOf(0)) {
        if (said.has_failed()) {
          std::fprintf(stderr, "%s\n", said.failed().message().c_str());
        }
      }
      std::exit(1);
    }
    return report->report();
  };
  wait_for(warmup);
  nlohmann::ordered_json result = {{"system", "tandem"}};
  const auto start = std::chrono::steady_clock::now();
  const tandem::v1::StepReport last = wait_for(steps);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                         static_cast<double>(steps - warmup);
  result["ms_per_step"] = seconds * 1e3;
  result["tokens_per_second"] = static_cast<double>(last.tokens()) / seconds;
  result["loss"] = last.loss();
  const std::string machine = resolved.resources().device() == tandem::v1::DEVICE_CUDA
                                  ? tandem::bench::GpuName()
                                  : tandem::bench::ProcessorName();
  std::printf("%s\n", tandem::bench::ResultLine(std::move(result), machine).c_str());
  return 0;
}
