// Steps per second of a job on real tandem-trainer processes, without the daemons around them:
//   tandem-bench-step JOB.yaml PATH_OF_TANDEM_TRAINER WARMUP_STEPS
// Prints one JSON object. The time runs from the report of the last warm-up step to that of the last step.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "jobspec/jobspec.h"
#include "nlohmann/json.hpp"
#include "parallel/process_groups.h"
#include "platform/build_info.h"
#include "tests/trainer/fake_daemon.h"

namespace {

using tandem::v1::FromTrainer;

tandem::v1::Assignment MakeAssignment(const tandem::v1::JobSpec& resolved) {
  tandem::v1::Assignment assignment;
  assignment.mutable_id()->set_job_id("bench");
  assignment.mutable_id()->set_attempt(1);
  assignment.set_desired(tandem::v1::DESIRED_RUN);
  *assignment.mutable_resolved() = resolved;
  const int ranks = resolved.parallelism().ranks();
  const auto groups = tandem::parallel::BuildProcessGroups({.world = ranks}).value();
  for (int rank = 0; rank < ranks; ++rank) {
    tandem::v1::RankStart& start = *assignment.add_ranks();
    start.set_rank(rank);
    for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
      start.add_groups(i);
    }
  }
  for (const auto& group : groups) {
    tandem::v1::GroupList& list = *assignment.add_groups();
    list.set_name(group.name);
    list.mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
  }
  return assignment;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: tandem-bench-step JOB.yaml PATH_OF_TANDEM_TRAINER WARMUP_STEPS\n");
    return 2;
  }
  const tandem::jobspec::ReadResult read = tandem::jobspec::ReadFile(argv[1]);
  auto violations = read.violations;
  if (violations.empty()) {
    violations = tandem::jobspec::Validate(read.spec);
  }
  if (!violations.empty()) {
    std::fprintf(stderr, "%s\n", tandem::jobspec::ToText(violations).c_str());
    return 64;
  }
  const tandem::v1::JobSpec resolved = tandem::jobspec::Resolve(read.spec);
  const int64_t warmup = std::atoll(argv[3]);
  const int64_t steps = resolved.training().steps();

  tandem::trainer::FakeDaemon daemon(argv[2], MakeAssignment(resolved), tandem::platform::BuildVersion());
  for (int rank = 0; rank < resolved.parallelism().ranks(); ++rank) {
    daemon.StartRank(rank);
  }
  const auto wait_for = [&](int64_t step) {
    const auto report = daemon.WaitFor(
        0, [step](const FromTrainer& m) { return m.has_report() && m.report().step() == step; },
        absl::Minutes(10));
    if (!report.has_value()) {
      std::fprintf(stderr, "rank 0 ended before step %ld\n", static_cast<long>(step));
      std::exit(1);
    }
    return report->report();
  };
  wait_for(warmup);
  const auto start = std::chrono::steady_clock::now();
  const tandem::v1::StepReport last = wait_for(steps);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                         static_cast<double>(steps - warmup);
  std::printf("%s\n", nlohmann::json({{"system", "tandem"},
                                      {"ms_per_step", seconds * 1e3},
                                      {"tokens_per_second", static_cast<double>(last.tokens()) / seconds},
                                      {"loss", last.loss()}})
                          .dump()
                          .c_str());
  return 0;
}
