// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tests/platform/temporary_folder.h"

namespace tandem::worker {
namespace {

using testing::IsNull;
using testing::NotNull;

// Plain files in place of the kernel's, so that nothing moves: what is written can be read.
class RankGroupsTest : public testing::Test {
 protected:
  RankGroupsTest() {
    Write("/proc/self/cgroup", "1:cpu:/elsewhere\n0::/\n");
    Write("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
    Write("/sys/fs/cgroup/cgroup.procs", std::to_string(getpid()) + "\n" + std::to_string(getppid()) + "\n");
    Write("/sys/fs/cgroup/memory.max", std::to_string(int64_t{8} << 30) + "\n");
  }

  void Write(const std::string& path, const std::string& text) const { folder_.Write(path.substr(1), text); }
  std::string Read(const std::string& path) const {
    std::ifstream file(root_ + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const platform::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(RankGroupsTest, TheDaemonAndEachRankHaveGroups) {
  const std::unique_ptr<RankGroups> groups = RankGroups::Make(root_);
  ASSERT_THAT(groups, NotNull());
  EXPECT_EQ(Read("/sys/fs/cgroup/cgroup.subtree_control"), "+memory");
  EXPECT_EQ(Read("/sys/fs/cgroup/ranks/cgroup.subtree_control"), "+memory");
  EXPECT_NE(Read("/sys/fs/cgroup/worker/cgroup.procs"), "");
  EXPECT_EQ(Read("/sys/fs/cgroup/ranks/memory.max"),
            std::to_string((int64_t{8} << 30) - (int64_t{256} << 20)))
      << "ranks reach their limit before that of all";
  const std::unique_ptr<RankGroup> first = groups->MakeGroup();
  const std::unique_ptr<RankGroup> second = groups->MakeGroup();
  ASSERT_THAT(first, NotNull());
  ASSERT_THAT(second, NotNull());
  const std::string of_first = "/sys/fs/cgroup/ranks/" + std::to_string(getpid()) + "-1";
  EXPECT_EQ(Read(of_first + "/memory.oom.group"), "1");
  ASSERT_EQ(write(first->processes_fd(), "0", 1), 1);
  EXPECT_EQ(Read(of_first + "/cgroup.procs"), "0");
  EXPECT_EQ(first->OutOfMemoryKills(), 0);
  EXPECT_EQ(first->PeakBytes(), 0) << "an old kernel does not say";
  Write(of_first + "/memory.events", "low 0\noom 1\noom_kill 2\noom_group_kill 1\n");
  Write(of_first + "/memory.peak", "4096\n");
  EXPECT_EQ(first->OutOfMemoryKills(), 2);
  EXPECT_EQ(first->PeakBytes(), 4096);
  EXPECT_EQ(second->OutOfMemoryKills(), 0);
}

TEST_F(RankGroupsTest, ForeignControlGroupsStay) {
  const auto untouched = [&] { return !std::filesystem::exists(root_ + "/sys/fs/cgroup/worker"); };
  Write("/sys/fs/cgroup/cgroup.procs", std::to_string(getpid()) + "\n1234567\n");
  EXPECT_THAT(RankGroups::Make(root_), IsNull()) << "others run there";
  EXPECT_TRUE(untouched());
  Write("/sys/fs/cgroup/cgroup.procs", std::to_string(getpid()) + "\n");
  Write("/sys/fs/cgroup/cgroup.controllers", "cpu pids\n");
  EXPECT_THAT(RankGroups::Make(root_), IsNull()) << "there is no controller of memory";
  Write("/sys/fs/cgroup/cgroup.controllers", "memory\n");
  std::filesystem::remove(root_ + "/sys/fs/cgroup/memory.max");
  EXPECT_THAT(RankGroups::Make(root_), IsNull()) << "it is the machine's own root";
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/proc/self/cgroup", "0::/user.slice\n");
  EXPECT_THAT(RankGroups::Make(root_), IsNull()) << "a group that nobody delegated";
  Write("/proc/self/cgroup", "4:memory:/\n");
  EXPECT_THAT(RankGroups::Make(root_), IsNull()) << "version 1";
  EXPECT_TRUE(untouched());
}

TEST_F(RankGroupsTest, WithoutALimitRanksHaveNone) {
  Write("/sys/fs/cgroup/memory.max", "max\n");
  ASSERT_THAT(RankGroups::Make(root_), NotNull());
  EXPECT_EQ(Read("/sys/fs/cgroup/ranks/memory.max"), "");
}

TEST_F(RankGroupsTest, AGroupThatCannotBeMadeIsNone) {
  const std::unique_ptr<RankGroups> groups = RankGroups::Make(root_);
  ASSERT_THAT(groups, NotNull());
  std::filesystem::remove_all(root_ + "/sys/fs/cgroup/ranks");
  EXPECT_THAT(groups->MakeGroup(), IsNull());
}

}  // namespace
}  // namespace tandem::worker
