// SPDX-License-Identifier: Apache-2.0
#include "worker/launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <variant>
#include <vector>

#include "tests/platform/fake_clock.h"
#include "tests/platform/no_threads.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(LauncherTest, WithoutThreadsOnlyTheRankFails) {
  const platform::FakeClock clock;
  ReportQueue reports(clock, {});
  std::vector<Input> inputs;
  Uploads uploads{Uploads::Logs()};
  Launcher launcher("/none", std::nullopt, /*groups=*/nullptr, reports, uploads,
                    [&](Input input) { inputs.push_back(std::move(input)); });
  {
    const platform::NoThreads none;
    launcher.Spawn({{.job = "j", .attempt = 1}, 0}, v1::Start(), "/none/log");
  }
  ASSERT_THAT(inputs, SizeIs(1));
  EXPECT_THAT(std::get<SpawnFailed>(inputs[0]).why, HasSubstr("start a thread: Resource temporarily unav"));
  EXPECT_THAT(std::get<SpawnFailed>(inputs[0]).why, HasSubstr("raise the limit of processes"));
}

// The first word that a rank prints whose program is a shell script of one line.
std::string SaidByRank(const std::string& line, int group_fd = -1) {
  const platform::TemporaryFolder folder;
  const std::string program = folder.Write("program", "#!/bin/sh\n" + line + "\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string log = folder.path() + "/log";
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  Spawner spawner;
  const absl::StatusOr<SpawnedProcess> process = spawner.Spawn(
      {.program = program, .log_file = log, .control_fd = null, .page_fd = dup(null), .group_fd = group_fd});
  EXPECT_TRUE(process.ok()) << process.status();
  if (process.ok()) {
    waitpid(process->id.pid, nullptr, 0);
    close(process->pidfd);
  }
  std::string word;
  std::ifstream(log) >> word;
  return word;
}

// A rank's memory is its job's matter; the worker has all jobs.
TEST(SpawnerTest, KernelKillsRanksBeforeTheWorker) {
  int own = 0;
  std::ifstream("/proc/self/oom_score_adj") >> own;
  EXPECT_EQ(SaidByRank("cat /proc/self/oom_score_adj"), std::to_string(std::min(own + 500, 1000)));
}

TEST(SpawnerTest, RankStartsInItsControlGroup) {
  const platform::TemporaryFolder folder;
  const std::string group = folder.path() + "/cgroup.procs";
  const int processes = open(group.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  EXPECT_EQ(SaidByRank("cat " + group, processes), "0") << "the process that writes it";
  close(processes);
}

}  // namespace
}  // namespace tandem::worker
