// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/owner.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/owned_folder.h"
#include "tests/comm/run_thread_ranks.h"
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

// Saves of a job whose directory another takes.
class OwnerTest : public OwnedFolderTest {
 protected:
  // The error of every one of two ranks; empty: saved.
  std::string ErrorOfSave(platform::Files& files, const Info& info) {
    return ErrorOfSave(files, FolderAt(directory_), info);
  }
  std::string ErrorOfSave(platform::Files& files, const JobFolder& folder, const Info& info) {
    std::mutex mu;
    std::vector<std::string> errors;
    comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
      WholeSteps whole;
      const std::string error = ErrorOf([&] { SaveShare(files, comm, folder, 3, info, whole); });
      const std::lock_guard lock(mu);
      errors.push_back(error);
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  }
};

TEST_F(OwnerTest, AnotherJobsCheckpointIsNeverOnesOwn) {
  SaveOn(files_, directory_, 2, 10);
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 10)),
            "checkpoint: rank 0: " + Path(10) +
                " is of job 0123456789ab; move it away, or use another checkpoint.directory");
  EXPECT_EQ(Inspect(files_, Path(10)).info.job, kJob);
  EXPECT_TRUE(LoadsAs(Path(10), 1, 10));
}

TEST_F(OwnerTest, LosingJobLeavesTheOwnersFiles) {
  ASSERT_TRUE(Take(Mine()).ok());
  EXPECT_EQ(ErrorOfSave(files_, Of(kJob, 10)), "");
  ASSERT_TRUE(Take(Other()).ok());
  std::filesystem::create_directories(Path(20) + ".tmp.1.other");
  EXPECT_EQ(
      ErrorOfSave(files_, Of(kJob, 20)),
      "checkpoint: rank 0: checkpoint.directory " + directory_ +
          " belongs to job other (other-name) on host here now; job 0123456789ab (0123456789ab-name) on "
          "host here can no longer save there and ends: give every job a checkpoint.directory of its "
          "own");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-20.tmp.1.other"));
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 20)), "");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-20"));
}

// What a stopped owner (SIGSTOP) still does when it wakes up must not get into the new owner's checkpoint,
// whichever of its operations it stopped at.
TEST_F(OwnerTest, WakingOwnerSparesTheNewCheckpoint) {
  for (const char* stopped_at :
       {"/rank-00000.safetensors", "/rank-00001.safetensors", "/manifest.json", "/step-10"}) {
    SCOPED_TRACE(stopped_at);
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(Take(Mine()).ok());
    absl::Notification stopped;
    absl::Notification awake;
    RacingFiles mine(stopped_at, [&] {
      stopped.Notify();
      awake.WaitForNotification();
    });
    std::string error;
    std::thread old_owner([&] { error = ErrorOfSave(mine, Of(kJob, 10)); });
    stopped.WaitForNotification();
    ASSERT_TRUE(Take(Other()).ok());
    RacingFiles others("/step-10", [&] {  // its files are written, and not yet published
      awake.Notify();
      old_owner.join();
    });
    EXPECT_EQ(ErrorOfSave(others, Of("other", 10)), "");
    EXPECT_THAT(error, HasSubstr("belongs to job other"));
    ASSERT_EQ(Newest().path, Path(10));
    EXPECT_THAT(skipped_, ElementsAre());
    EXPECT_EQ(Inspect(files_, Path(10)).info.job, "other");
    EXPECT_THAT(Names(), ElementsAre(".owner", "step-10"));
  }
}

// Whether it comes before the manifest, or between the last look at the owner and the rename.
TEST_F(OwnerTest, ASavePublishesNothingUnderANewOwner) {
  for (const char* const where : {"/manifest.json", "/step-10"}) {
    SCOPED_TRACE(where);
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(Take(Mine()).ok());
    RacingFiles files(where, [&] { ASSERT_TRUE(Take(Other()).ok()); });
    EXPECT_THAT(ErrorOfSave(files, Of(kJob, 10)), HasSubstr("belongs to job other"));
    EXPECT_THAT(Names(), ElementsAre(".owner"));
    EXPECT_EQ(ErrorOfSave(files_, Of("other", 10)), "");
    EXPECT_THAT(Names(), ElementsAre(".owner", "step-10"));
    EXPECT_EQ(Inspect(files_, Path(10)).info.job, "other");
  }
}

// A rank that is stopped at once gives the directory back on another thread than the one that saves, which
// may just have looked at the owner.
TEST_F(OwnerTest, ReleaseWaitsForAPublication) {
  ASSERT_TRUE(Take(Mine()).ok());
  const JobFolder folder = FolderAt(directory_);
  Lease lease(files_, folder, Mine(), [](const std::string& reason) { ADD_FAILURE() << reason; });
  absl::Notification given_back;
  std::thread stop;
  RacingFiles files("/step-10", [&] {
    stop = std::thread([&] {
      lease.Release();
      given_back.Notify();
    });
    EXPECT_FALSE(given_back.WaitForNotificationWithTimeout(absl::Milliseconds(300)))
        << "another job may own the directory as this one publishes";
  });
  EXPECT_EQ(ErrorOfSave(files, folder, Of(kJob, 10)), "");
  stop.join();
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

TEST_F(OwnerTest, NothingIsPublishedAfterRelease) {
  ASSERT_TRUE(Take(Mine()).ok());
  const JobFolder folder = FolderAt(directory_);
  Lease lease(files_, folder, Mine(), [](const std::string& reason) { ADD_FAILURE() << reason; });
  RacingFiles files("/manifest.json", [&] { lease.Release(); });
  EXPECT_EQ(ErrorOfSave(files, folder, Of(kJob, 10)),
            "checkpoint: rank 0: this process is ending and has released the checkpoint directory");
  EXPECT_THAT(Names(), ElementsAre());
  std::filesystem::create_directories(Path(10) + ".tmp.1.other");
  EXPECT_NE(ErrorOfSave(files, folder, Of(kJob, 20)), "");
  EXPECT_THAT(Names(), ElementsAre("step-10.tmp.1.other"));
}

TEST_F(OwnerTest, UnremovableLeftoversBlockNoOwner) {
  ASSERT_TRUE(Take(Mine()).ok());
  std::filesystem::create_directories(Path(10) + ".tmp.1.0123456789ab");
  StuckFiles stuck("/step-10.tmp");
  ASSERT_TRUE(Take(stuck, Other()).ok());
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10.tmp.1.0123456789ab.gone"))
      << "where its owner, if it only sleeps, has nothing to publish";
  EXPECT_EQ(ErrorOfSave(stuck, Of("other", 10)), "");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-10.tmp.1.0123456789ab.gone"));
}

// The control plane may take an attempt for dead that is only slow: both save the same numbers.
TEST_F(OwnerTest, ConcurrentlyPublishedCheckpointStays) {
  SaveOn(files_, root_ + "/elsewhere", 2, 10, /*keep=*/3, /*attempt=*/2);
  const auto other = [&] { std::filesystem::rename(root_ + "/elsewhere/step-10", Path(10)); };
  RacingFiles files("/step-10", other);
  EXPECT_EQ(ErrorOfSave(files, InfoOf(10)), "");
  EXPECT_THAT(Names(), ElementsAre("step-10"));
  EXPECT_EQ(Inspect(files_, Path(10)).info.attempt, 2);
  EXPECT_TRUE(LoadsAs(Path(10), 3, 10));
}

TEST_F(OwnerTest, ADamagedOneMakesWay) {
  RacingFiles files("/step-10", [&] {
    std::filesystem::create_directories(Path(10));
    WriteAll(Path(10) + "/manifest.json", "torn");
  });
  EXPECT_EQ(ErrorOfSave(files, InfoOf(10)), "");
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-10.damaged.1"));
  EXPECT_TRUE(LoadsAs(Path(10), 3, 10));
}

}  // namespace
}  // namespace tandem::checkpoint
