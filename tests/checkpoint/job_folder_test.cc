// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/job_folder.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>

#include "absl/status/status.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/owned_folder.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What has the path of the job's folder, to a rank that found another one there when its attempt started.
class JobFolderTest : public OwnedFolderTest {
 protected:
  JobFolderTest() : removed_(FolderAt(directory_)) {
    ++removed_.id.inode;
    on_another_device_ = removed_;
    ++on_another_device_.id.device;
    on_another_mount_ = removed_;
    ++on_another_mount_.id.mount;
  }

  JobFolder removed_;
  JobFolder on_another_device_;
  JobFolder on_another_mount_;
};

TEST_F(JobFolderTest, WhoOwnsAnotherOneIsNamed) {
  EXPECT_THAT(CheckJobFolder(files_, removed_, Mine()).message(),
              HasSubstr("or the folder was replaced), so nothing is written; bring the first one back before "
                        "the next save, or, if it is gone, leave an empty one there"));
  ASSERT_TRUE(Take(Other()).ok());
  const absl::Status other = CheckJobFolder(files_, removed_, Mine());
  EXPECT_TRUE(absl::IsFailedPrecondition(other));
  EXPECT_THAT(other.message(), HasSubstr(" and belongs to job other (other-name) on host here, so nothing"));
}

TEST_F(JobFolderTest, UnreadableOwnerIsNotAnother) {
  ASSERT_TRUE(Take(Mine()).ok());
  UnreadableFiles files("/.owner", EIO);
  const absl::Status unknown = CheckJobFolder(files, on_another_device_, Mine());
  EXPECT_TRUE(absl::IsUnavailable(unknown)) << unknown;
  EXPECT_EQ(unknown.message(), "checkpoint.directory " + directory_ + " cannot be reached (open " +
                                   directory_ +
                                   "/.owner: Input/output error), so nothing is written; the "
                                   "next save tries again");
  EXPECT_TRUE(CheckJobFolder(files_, on_another_device_, Mine()).ok());
}

TEST_F(JobFolderTest, OneThatWasMadeAgainIsTheJobs) {
  JobFolder folder = removed_;
  for (const char* const name : {"/.owner.other.1.tmp", "/.same-folder.other"}) {
    WriteAll(directory_ + name, "");  // of a job that is about to start
  }
  ASSERT_TRUE(TakeFolderMadeAgain(files_, folder, Mine()).ok());
  EXPECT_EQ(folder.id, FolderAt(directory_).id);
  EXPECT_TRUE(CheckJobFolder(files_, removed_, Mine()).ok());
  EXPECT_THAT(Names(), ElementsAre(".owner", ".owner.other.1.tmp", ".same-folder.other"));
}

// What lies beneath a mount point may be empty, and of the same file system where folders of it are mounted.
TEST_F(JobFolderTest, EmptyFolderOnAnotherMountIsNotTaken) {
  for (JobFolder* const folder : {&on_another_device_, &on_another_mount_}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(TakeFolderMadeAgain(files_, *folder, Mine())));
    EXPECT_THAT(Names(), ElementsAre());
  }
}

TEST_F(JobFolderTest, UsedFolderIsNotTaken) {
  WriteAll(directory_ + "/notes", "");
  EXPECT_TRUE(absl::IsFailedPrecondition(TakeFolderMadeAgain(files_, removed_, Mine())));
  std::filesystem::remove(directory_ + "/notes");
  ASSERT_TRUE(Take(Other()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(TakeFolderMadeAgain(files_, removed_, Mine())));
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
}

TEST_F(JobFolderTest, OfTwoThatTakeItOneIsRefused) {
  RacingFiles files("/.owner", [&] { ASSERT_TRUE(Take(Other()).ok()); });
  EXPECT_TRUE(absl::IsAlreadyExists(TakeFolderMadeAgain(files, removed_, Mine())));
  EXPECT_THAT(Names(), ElementsAre(".owner"));
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
}

}  // namespace
}  // namespace tandem::checkpoint
