// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/owned_folder.h"
#include "tests/platform/irregular_files.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Who may own a directory, and how another learns that the owner is alive.
class OwnershipTest : public OwnedFolderTest {
 protected:
  // Renews; the file's time is later than before also where the file system's clock has not moved since.
  void RenewLater(const Owner& self) {
    const auto before = std::filesystem::last_write_time(directory_ + "/.owner");
    ASSERT_TRUE(RenewOwnership(files_, directory_, self).ok());
    if (std::filesystem::last_write_time(directory_ + "/.owner") <= before) {
      std::filesystem::last_write_time(directory_ + "/.owner", before + std::chrono::milliseconds(1));
    }
  }
};

TEST_F(OwnershipTest, AnOwnerThatLivesKeepsItsDirectory) {
  ASSERT_TRUE(Take(Mine()).ok());
  int pauses = 0;
  const absl::Status taken = Take(Other(), [&] {
    ++pauses;
    RenewLater(Mine());
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(taken));
  EXPECT_EQ(taken.message(), "checkpoint.directory " + directory_ +
                                 " is in use by job 0123456789ab (0123456789ab-name) on host here, which is "
                                 "alive; job other (other-name) on host here cannot save there: give every "
                                 "job a checkpoint.directory of its own, or end the other job first");
  EXPECT_EQ(pauses, 1);
  EXPECT_EQ(ReadOwner(files_, directory_)->job, kJob);
}

TEST_F(OwnershipTest, DeadOwnerGivesWay) {
  ASSERT_TRUE(Take(Mine()).ok());
  absl::Duration waited;
  ASSERT_TRUE(Take(Other(), [&] { waited += kRenewal; }).ok());
  EXPECT_EQ(waited, kPatience + kRenewal) << "and once more, for another newcomer";
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
  EXPECT_THAT(Names(), ElementsAre(".owner"));
}

TEST_F(OwnershipTest, AnOwnerWhoseClockJumpsBackIsAlive) {
  ASSERT_TRUE(Take(Mine()).ok());
  const absl::Status taken = Take(Other(), [&] {
    const auto now = std::filesystem::last_write_time(directory_ + "/.owner");
    std::filesystem::last_write_time(directory_ + "/.owner", now - std::chrono::hours(1));
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
}

// The owner waits for the disk to renew its file. Reads come from memory.
TEST_F(OwnershipTest, OwnerOnAHangingDiskIsAlive) {
  ASSERT_TRUE(Take(Mine()).ok());
  absl::Duration hangs = 2 * kPatience;
  class HangingDisk final : public platform::ForwardingFiles {
   public:
    explicit HangingDisk(std::function<void()> wait) : wait_(std::move(wait)) {}
    absl::Status Write(const std::string& path, std::string_view content) override {
      wait_();
      return ForwardingFiles::Write(path, content);
    }

   private:
    const std::function<void()> wait_;
  } disk([&] {
    if (std::exchange(hangs, absl::ZeroDuration()) > absl::ZeroDuration()) {
      RenewLater(Mine());
    }
  });
  const absl::Status taken =
      Take(disk, Other(), [&] { hangs = std::max(hangs - kRenewal, absl::ZeroDuration()); });
  EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
  EXPECT_TRUE(RenewOwnership(files_, directory_, Mine()).ok());
  EXPECT_THAT(Names(), ElementsAre(".owner"));
}

TEST_F(OwnershipTest, SecondHeirIsRefusedBeforeTouchingAnything) {
  ASSERT_TRUE(Take(Mine()).ok());
  int pauses = 0;
  const absl::Status first = Take({.job = "first", .name = "", .host = ""}, [&] {
    // Their last looks were at the dead owner; the second replaces the first.
    if (++pauses == kPatience / kRenewal + 1) {
      Steal("second");
    }
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(first)) << first;
  EXPECT_THAT(std::string(first.message()), HasSubstr("is in use by job second, which is alive; job first"));
}

TEST_F(OwnershipTest, IrregularOwnerFileIsNamed) {
  const std::string path = directory_ + "/.owner";
  for (const std::string kind : platform::kIrregularKinds) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    platform::PutIrregularFile(kind, path);
    const absl::Status expected =
        absl::InvalidArgumentError("open " + path + ": it is " + kind + ", not a regular file");
    EXPECT_EQ(Take(Mine()), expected);
    EXPECT_EQ(RenewOwnership(files_, directory_, Mine()), expected);
    EXPECT_EQ(CheckOwner(files_, directory_, Mine()), expected);
  }
  std::filesystem::remove_all(path);
  std::filesystem::create_symlink("nothing", path);
  int pauses = 0;
  EXPECT_EQ(Take(Mine(), [&] { ++pauses; }),
            absl::InvalidArgumentError(path + " exists but cannot be read (a dangling link?); remove it"));
  EXPECT_LE(pauses, 4);
  EXPECT_THAT(Names(), ElementsAre(".owner"));
}

TEST_F(OwnershipTest, LateRenewalIsAlive) {
  ASSERT_TRUE(Take(Mine()).ok());
  int pauses = 0;
  const absl::Status taken = Take(Other(), [&] {
    if (++pauses == kPatience / kRenewal) {
      RenewLater(Mine());
    }
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
}

TEST_F(OwnershipTest, NewAttemptReplacesTheOldAtOnce) {
  Owner second = Mine();
  second.attempt = 2;
  ASSERT_TRUE(Take(Mine()).ok());
  ASSERT_TRUE(Take(second, [] { FAIL() << "it waited"; }).ok());
  const absl::Status renewed = RenewOwnership(files_, directory_, Mine());
  EXPECT_TRUE(absl::IsAborted(renewed));
  EXPECT_EQ(renewed.message(), "checkpoint.directory " + directory_ +
                                   " belongs to job 0123456789ab (0123456789ab-name, attempt 2) on host here "
                                   "now; job 0123456789ab (0123456789ab-name) on host here ends");
  EXPECT_TRUE(absl::IsAborted(Take(Mine())));
  EXPECT_TRUE(RenewOwnership(files_, directory_, second).ok());
}

TEST_F(OwnershipTest, ReleasedDirectoryIsFreeAtOnce) {
  ASSERT_TRUE(Take(Mine()).ok());
  ASSERT_TRUE(ReleaseOwnership(files_, directory_, Other()).ok()) << "which is not its owner";
  EXPECT_EQ(ReadOwner(files_, directory_)->job, kJob);
  ASSERT_TRUE(ReleaseOwnership(files_, directory_, Mine()).ok());
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_TRUE(Take(Other(), [] { FAIL() << "it waited"; }).ok());
}

// Of two that come at the same instant, one is refused at once or by its next renewal; never do both go on.
TEST_F(OwnershipTest, ConcurrentTakersDoNotBothOwn) {
  RacingFiles files("/.owner", [&] { ASSERT_TRUE(Take(Other()).ok()); });  // between its look and its write
  const absl::Status first = Take(files, Mine(), [&] { RenewLater(Other()); });
  EXPECT_TRUE(absl::IsFailedPrecondition(first)) << first;
  EXPECT_TRUE(RenewOwnership(files_, directory_, Other()).ok());

  // Both found the same dead one.
  ASSERT_TRUE(ReleaseOwnership(files_, directory_, Other()).ok());
  ASSERT_TRUE(Take({.job = "dead"}).ok());
  ASSERT_TRUE(Take(Mine()).ok());
  ASSERT_TRUE(Take(Other()).ok());
  EXPECT_TRUE(absl::IsAborted(RenewOwnership(files_, directory_, Mine())));
  EXPECT_TRUE(RenewOwnership(files_, directory_, Other()).ok());
}

TEST_F(OwnershipTest, RemovedOwnerFileIsNoLoss) {
  ASSERT_TRUE(Take(Mine()).ok());
  std::filesystem::remove(directory_ + "/.owner");
  EXPECT_TRUE(absl::IsNotFound(RenewOwnership(files_, directory_, Mine())));
  EXPECT_TRUE(RestoreOwnership(files_, directory_, Mine(), kRenewal).ok());
  EXPECT_TRUE(RenewOwnership(files_, directory_, Mine()).ok());
  EXPECT_EQ(ReadOwner(files_, directory_)->job, kJob);
  std::filesystem::remove_all(directory_);
  EXPECT_TRUE(absl::IsNotFound(RenewOwnership(files_, directory_, Mine())));
  const absl::Status restored = RestoreOwnership(files_, directory_, Mine(), kRenewal);
  EXPECT_TRUE(absl::IsNotFound(restored)) << restored;
}

TEST_F(OwnershipTest, ForeignOwnerTextIsAnothers) {
  std::filesystem::create_directories(directory_);
  const std::string mine = R"({"job": "0123456789ab", "name": "", "attempt": 1, "host": ""})";
  for (const std::string& text : {std::string(), std::string("0123456789ab"), std::string("{}"),
                                  std::string("{\"job\": 7}"), mine + std::string(100'000, ' ')}) {
    WriteAll(directory_ + "/.owner", text);
    EXPECT_TRUE(absl::IsAborted(RenewOwnership(files_, directory_, Mine()))) << text;
    EXPECT_TRUE(Take(Mine()).ok()) << text;
    EXPECT_TRUE(RenewOwnership(files_, directory_, Mine()).ok());
  }
}

}  // namespace
}  // namespace tandem::checkpoint
