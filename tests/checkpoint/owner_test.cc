#include "checkpoint/owner.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "checkpoint/lease.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kJob[] = "0123456789ab";  // of InfoOf

// Two jobs, or two attempts of one, in a directory that each takes for its own.
class OwnerTest : public CheckpointTest {
 protected:
  // The error of every one of two ranks; empty: saved.
  std::string ErrorOfSave(platform::Files& files, const Info& info) {
    std::mutex mu;
    std::vector<std::string> errors;
    comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
      RankState state(comm.rank(), 2);
      state.Set(info.step);
      std::string error;
      try {
        Save(files, comm, directory_, 3, OwnerOf(info), info, state.shards());
      } catch (const CheckpointError& e) {
        error = e.what();
      }
      const std::lock_guard lock(mu);
      errors.push_back(error);
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  }
  static Owner Mine() { return OwnerOf(InfoOf(0)); }
  static Owner Other() { return OwnerOf(Of("other", 0)); }

  // From whoever has it, once that one is taken for dead.
  absl::Status Take(const Owner& self) {
    return TakeOwnership(files_, directory_, self, [] {});
  }
  // Renews; the file's time is later than before also where the file system's clock has not moved since.
  void RenewLater(const Owner& self) {
    const auto before = std::filesystem::last_write_time(directory_ + "/.owner");
    ASSERT_TRUE(RenewOwnership(files_, directory_, self).ok());
    if (std::filesystem::last_write_time(directory_ + "/.owner") <= before) {
      std::filesystem::last_write_time(directory_ + "/.owner", before + std::chrono::milliseconds(1));
    }
  }

  static Info Of(const std::string& job, int64_t step) {
    Info info = InfoOf(step);
    info.job = job;
    return info;
  }
};

TEST_F(OwnerTest, ACheckpointOfAnotherJobIsNeverTakenForOnesOwn) {
  SaveOn(files_, directory_, 2, 10);
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 10)),
            "checkpoint: rank 0: " + Path(10) +
                " is of job 0123456789ab; move it away, or use another checkpoint.directory");
  EXPECT_EQ(ReadInfo(files_, Path(10)).job, kJob);
  EXPECT_TRUE(LoadsAs(Path(10), 1, 10));
}

TEST_F(OwnerTest, AJobThatLostItsDirectorySavesNothingAndLeavesTheOwnersTemporaryFiles) {
  ASSERT_TRUE(Take(Mine()).ok());
  EXPECT_EQ(ErrorOfSave(files_, Of(kJob, 10)), "");
  ASSERT_TRUE(Take(Other()).ok());
  std::filesystem::create_directories(Path(20) + ".tmp.1");
  EXPECT_EQ(
      ErrorOfSave(files_, Of(kJob, 20)),
      "checkpoint: rank 0: checkpoint.directory " + directory_ +
          " belongs to job other (other-name) on host here now; job 0123456789ab (0123456789ab-name) on "
          "host here cannot save there any more and ends: give every job a checkpoint.directory of its "
          "own");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-20.tmp.1"));
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 20)), "");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-20"));
}

TEST_F(OwnerTest, AJobThatComesInTheMiddleOfASaveEndsIt) {
  ASSERT_TRUE(Take(Mine()).ok());
  RacingFiles files("/manifest.json", [&] { ASSERT_TRUE(Take(Other()).ok()); });
  EXPECT_THAT(ErrorOfSave(files, Of(kJob, 10)), HasSubstr("belongs to job other"));
  EXPECT_EQ(Newest().path, "");
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 10)), "");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10"));
  EXPECT_EQ(ReadInfo(files_, Path(10)).job, "other");
}

TEST_F(OwnerTest, ALostDirectoryIsAnErrorOfItsOwnKindOnEveryRank) {
  ASSERT_TRUE(Take(Other()).ok());
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    RankState state(comm.rank(), 2);
    state.Set(10);
    EXPECT_THROW(Save(files_, comm, directory_, 3, Mine(), InfoOf(10), state.shards()), DirectoryLost);
  });
}

TEST_F(OwnerTest, AnOwnerThatLivesKeepsItsDirectory) {
  ASSERT_TRUE(Take(Mine()).ok());
  int pauses = 0;
  const absl::Status taken = TakeOwnership(files_, directory_, Other(), [&] {
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

TEST_F(OwnerTest, AnOwnerThatIsDeadGivesWayAfterItsPatience) {
  ASSERT_TRUE(Take(Mine()).ok());
  absl::Duration waited;
  ASSERT_TRUE(TakeOwnership(files_, directory_, Other(), [&] { waited += kRenewal; }).ok());
  EXPECT_EQ(waited, kPatience);
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
}

TEST_F(OwnerTest, AnOwnerThatRenewsLateButInTimeIsAlive) {
  ASSERT_TRUE(Take(Mine()).ok());
  int pauses = 0;
  const absl::Status taken = TakeOwnership(files_, directory_, Other(), [&] {
    if (++pauses == kPatience / kRenewal) RenewLater(Mine());
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(taken)) << taken;
}

TEST_F(OwnerTest, ANewAttemptNeedNotWaitAndTheOldOneMayNotReturn) {
  Owner second = Mine();
  second.attempt = 2;
  ASSERT_TRUE(Take(Mine()).ok());
  ASSERT_TRUE(TakeOwnership(files_, directory_, second, [] { FAIL() << "it waited"; }).ok());
  const absl::Status renewed = RenewOwnership(files_, directory_, Mine());
  EXPECT_TRUE(absl::IsAborted(renewed));
  EXPECT_EQ(renewed.message(), "checkpoint.directory " + directory_ +
                                   " belongs to job 0123456789ab (0123456789ab-name, attempt 2) on host here "
                                   "now; job 0123456789ab (0123456789ab-name) on host here ends");
  EXPECT_TRUE(absl::IsAborted(Take(Mine())));
  EXPECT_TRUE(RenewOwnership(files_, directory_, second).ok());
}

TEST_F(OwnerTest, ADirectoryThatWasGivenBackIsFreeAtOnce) {
  ASSERT_TRUE(Take(Mine()).ok());
  ASSERT_TRUE(ReleaseOwnership(files_, directory_, Other()).ok()) << "which is not its owner";
  EXPECT_EQ(ReadOwner(files_, directory_)->job, kJob);
  ASSERT_TRUE(ReleaseOwnership(files_, directory_, Mine()).ok());
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_TRUE(TakeOwnership(files_, directory_, Other(), [] { FAIL() << "it waited"; }).ok());
}

// Of two that come at the same instant, one is refused or told by its next renewal; never do both go on.
TEST_F(OwnerTest, TwoThatComeAtOnceDoNotBothOwn) {
  RacingFiles files("/.owner", [&] { ASSERT_TRUE(Take(Other()).ok()); });  // between its look and its write
  const absl::Status first = TakeOwnership(files, directory_, Mine(), [&] { RenewLater(Other()); });
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

TEST_F(OwnerTest, AFileThatSomebodyRemovedOrTheDirectoryItselfIsNoLoss) {
  ASSERT_TRUE(Take(Mine()).ok());
  std::filesystem::remove(directory_ + "/.owner");
  EXPECT_TRUE(RenewOwnership(files_, directory_, Mine()).ok());
  EXPECT_EQ(ReadOwner(files_, directory_)->job, kJob);
  std::filesystem::remove_all(directory_);
  const absl::Status renewed = RenewOwnership(files_, directory_, Mine());
  EXPECT_TRUE(absl::IsNotFound(renewed)) << renewed;
}

TEST_F(OwnerTest, ATextThatIsNoOwnersIsSomebodyElses) {
  std::filesystem::create_directories(directory_);
  for (const char* text : {"", "0123456789ab", "{}", "{\"job\": 7}"}) {
    WriteAll(directory_ + "/.owner", text);
    EXPECT_TRUE(absl::IsAborted(RenewOwnership(files_, directory_, Mine()))) << text;
    EXPECT_TRUE(Take(Mine()).ok()) << text;
    EXPECT_TRUE(RenewOwnership(files_, directory_, Mine()).ok());
  }
}

TEST_F(OwnerTest, ALeaseThatIsLostSaysSoOnceAndOneThatIsHeldGoesBackWhenReleased) {
  ASSERT_TRUE(Take(Mine()).ok());
  std::mutex mu;
  std::condition_variable changed;
  std::vector<std::string> reasons;
  Lease lease(
      files_, directory_, Mine(),
      [&](const std::string& reason) {
        const std::lock_guard lock(mu);
        reasons.push_back(reason);
        changed.notify_all();
      },
      absl::Milliseconds(5));
  ASSERT_TRUE(Take(Other()).ok());
  {
    std::unique_lock lock(mu);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return !reasons.empty(); }));
  }
  lease.Release();
  EXPECT_THAT(reasons, ElementsAre(HasSubstr("belongs to job other (other-name)")));
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
  {
    Lease held(
        files_, directory_, Other(), [](const std::string& reason) { FAIL() << reason; },
        absl::Milliseconds(5));
    held.Release();
  }
  EXPECT_TRUE(absl::IsNotFound(ReadOwner(files_, directory_).status()));
}

// The control plane may take an attempt for dead that is only slow: both save the same numbers.
TEST_F(OwnerTest, ACheckpointThatAnotherAttemptPublishesMeanwhileIsVerifiedAndStays) {
  SaveOn(files_, root_ + "/elsewhere", 2, 10, /*keep=*/3, /*attempt=*/2);
  const auto other = [&] { std::filesystem::rename(root_ + "/elsewhere/step-10", Path(10)); };
  RacingFiles files("/step-10", other);
  EXPECT_EQ(ErrorOfSave(files, InfoOf(10)), "");
  EXPECT_THAT(Names(), ElementsAre("step-10"));
  EXPECT_EQ(ReadInfo(files_, Path(10)).attempt, 2);
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
