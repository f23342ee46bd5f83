// SPDX-License-Identifier: Apache-2.0
#include "link/shared_page.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem::link {
namespace {

TEST(SharedPageTest, StartsAsDocumented) {
  const absl::StatusOr<MappedPage> page = MappedPage::Create();
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ((*page)->step, 0);
  EXPECT_EQ((*page)->instruction, -1);
  EXPECT_EQ((*page)->orphan_deadline_boottime_ns, 0);
  EXPECT_TRUE(fcntl(page->fd(), F_GETFD) & FD_CLOEXEC);
}

TEST(SharedPageTest, OutlivesItsWriter) {
  absl::StatusOr<MappedPage> page = MappedPage::Create();
  ASSERT_TRUE(page.ok());
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<MappedPage> mine = MappedPage::Attach(dup(page->fd()));
    if (!mine.ok()) {
      _exit(1);
    }
    (*mine)->step = 37;
    (*mine)->collectives[SharedPage::kMaxCommunicators - 1] = 9;
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ((*page)->step, 37);
  EXPECT_EQ((*page)->collectives[SharedPage::kMaxCommunicators - 1], 9u);
}

TEST(SharedPageTest, AttachedPageShowsTheDaemonsWrites) {
  absl::StatusOr<MappedPage> page = MappedPage::Create();
  ASSERT_TRUE(page.ok());
  const absl::StatusOr<MappedPage> other = MappedPage::Attach(dup(page->fd()));
  ASSERT_TRUE(other.ok());
  (*page)->orphan_deadline_boottime_ns = 5;
  EXPECT_EQ((*other)->orphan_deadline_boottime_ns, 5);
}

TEST(SharedPageTest, ADescriptorThatHoldsNoPageIsRefused) {
  EXPECT_FALSE(MappedPage::Attach(-1).ok());
  const int fd = memfd_create("empty", MFD_CLOEXEC);
  const absl::Status status = MappedPage::Attach(fd).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace tandem::link
