// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <pwd.h>
#include <sys/prctl.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker/daemon_fixture.h"
#include "worker/spawner.h"

namespace tandem::worker {
namespace {

using ::testing::HasSubstr;

// A line of /proc/PID/status.
std::string StatusLine(pid_t pid, const std::string& key) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) {
      return line;
    }
  }
  return "";
}

TEST(FindUserTest, AnUnknownUserIsRefusedByName) {
  EXPECT_THAT(std::string(FindUser("nobody-of-that-name").status().message()),
              HasSubstr("--user nobody-of-that-name: this machine has no such user"));
}

TEST_F(DaemonTest, RanksOfAnotherUserDieWithTheDaemon) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root may run jobs as another user";
  }
  const passwd* const nobody = getpwnam("nobody");
  if (nobody == nullptr) {
    GTEST_SKIP() << "there is no user nobody";
  }
  // A folder of the build may be closed to others.
  const std::string trainer = folder_ + "/trainer";
  std::filesystem::copy_file(TANDEM_FAKE_TRAINER, trainer);
  ASSERT_EQ(chmod(trainer.c_str(), 0755), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0711), 0);
  controller_->Want({Job("endless", 2)});
  worker_ = std::make_unique<WorkerProcess>(WorkerProcess::Options{.controller = controller_->address(),
                                                                   .state_folder = folder_ + "/state",
                                                                   .trainer = trainer,
                                                                   .more = {"--user", "nobody"}});
  ASSERT_TRUE(WaitForStep(5));
  const std::vector<pid_t> pids = Pids();
  ASSERT_EQ(pids.size(), 2U);
  for (const pid_t pid : pids) {
    const std::string id = absl::StrCat(nobody->pw_uid);
    EXPECT_EQ(StatusLine(pid, "Uid"), absl::StrCat("Uid:\t", id, "\t", id, "\t", id, "\t", id));
    const std::string group = absl::StrCat(nobody->pw_gid);
    EXPECT_EQ(StatusLine(pid, "Gid"), absl::StrCat("Gid:\t", group, "\t", group, "\t", group, "\t", group));
    EXPECT_THAT(StatusLine(pid, "Groups"), HasSubstr(group));
    EXPECT_THAT(StatusLine(pid, "Groups"), ::testing::Not(HasSubstr("\t0 ")));
    EXPECT_THAT(StatusLine(pid, "CapEff"), HasSubstr("0000000000000000"));
  }
  worker_->Kill();
  EXPECT_TRUE(WaitUntilGone(pids)) << "they die with their daemon";
}

TEST_F(DaemonTest, PathsOutsideTheRootsAreRefused) {
  std::filesystem::create_directories(folder_ + "/data");
  controller_->Want({Job("endless", 1)});
  StartWorker({"--read-root", folder_ + "/data"});
  ASSERT_TRUE(controller_->WaitFor(Ended));
  EXPECT_THAT(
      Status().refused().message(),
      ::testing::AllOf(HasSubstr("data.train"), HasSubstr(folder_ + "/data.txt"), HasSubstr("--read-root")));
  EXPECT_EQ(Status().refused().class_(), v1::FAILURE_CLASS_USER);
}

TEST_F(DaemonTest, WithoutTlsOnlyLocalControllersAreDialled) {
  WorkerProcess worker(
      {.controller = "controller.example:7471", .state_folder = folder_ + "/state", .log = folder_ + "/log"});
  const std::optional<int> status = worker.Wait();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 2);
  EXPECT_THAT(ReadAll(folder_ + "/log"),
              HasSubstr("is not on this machine, and that machine decides what runs here"));
}

}  // namespace
}  // namespace tandem::worker
