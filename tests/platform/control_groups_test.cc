// SPDX-License-Identifier: Apache-2.0
#include "platform/control_groups.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/platform/temporary_folder.h"

namespace tandem::platform {
namespace {

// A machine's /proc and /sys in a folder.
class ControlGroupsTest : public testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) const { folder_.Write(path.substr(1), text); }
  GroupLimits Limits() const { return ReadGroupLimits(folder_.path()); }

  const TemporaryFolder folder_;
};

TEST_F(ControlGroupsTest, WithoutGroupsThereIsNoLimit) {
  EXPECT_EQ(Limits().processors, 0);
  EXPECT_EQ(Limits().memory_bytes, 0);
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 0);
}

TEST_F(ControlGroupsTest, TheLowestLimitAboveCounts) {
  Put("/proc/self/cgroup", "0::/pods/worker\n");
  Put("/sys/fs/cgroup/pods/cpu.max", "250000 100000\n");
  Put("/sys/fs/cgroup/pods/memory.max", "max\n");
  Put("/sys/fs/cgroup/pods/worker/cpu.max", "max 100000\n");
  Put("/sys/fs/cgroup/pods/worker/memory.max", "17179869184\n");
  EXPECT_EQ(Limits().processors, 2.5);
  EXPECT_EQ(Limits().memory_bytes, int64_t{16} << 30);
}

TEST_F(ControlGroupsTest, AvailableIsTheLeastOfMachineAndGroups) {
  Put("/proc/meminfo", "MemTotal:        2048 kB\nMemFree:           20 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(folder_.path()), 1000 << 10);
  Put("/proc/self/cgroup", "0::/pods/worker\n");
  Put("/sys/fs/cgroup/pods/worker/memory.max", "900000\n");
  Put("/sys/fs/cgroup/pods/worker/memory.stat", "anon 300000\nfile 500000\n");
  EXPECT_EQ(AvailableMemoryBytes(folder_.path()), 600000);
}

// A container that sees its own group as the root, under the path of the machine.
TEST_F(ControlGroupsTest, MachinesPathMayBeMissing) {
  Put("/proc/self/cgroup", "0::/kubepods/burstable/pod1/abc\n");
  Put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  Put("/sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_EQ(Limits().processors, 4);
  EXPECT_EQ(Limits().memory_bytes, int64_t{1} << 30);
}

TEST_F(ControlGroupsTest, VersionOneHasItsOwnFiles) {
  Put("/proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2147483648\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Put("/sys/fs/cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  Put("/proc/vmstat", "oom_kill 8\n");
  EXPECT_EQ(Limits().processors, 1.5);
  EXPECT_EQ(Limits().memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 3);
}

TEST_F(ControlGroupsTest, AQuotaOfMinusOneIsNone) {
  Put("/proc/self/cgroup", "3:cpu,cpuacct:/\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Limits().processors, 0);
}

TEST_F(ControlGroupsTest, TheKillsOfTheOwnGroupCount) {
  Put("/proc/vmstat", "nr_free_pages 1\noom_kill 7\n");
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 7);
  Put("/proc/self/cgroup", "0::/worker\n");
  Put("/sys/fs/cgroup/worker/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(OutOfMemoryKills(folder_.path()), 2);
}

TEST_F(ControlGroupsTest, ThisMachineHasProcessorsAndMemory) {
  EXPECT_GE(NumProcessors(), 1);
  EXPECT_GT(MemoryBytes(), 0);
}

}  // namespace
}  // namespace tandem::platform
