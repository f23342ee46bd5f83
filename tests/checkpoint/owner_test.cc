#include "checkpoint/owner.h"

#include <gmock/gmock.h>

#include <mutex>
#include <utility>

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
        Save(files, comm, directory_, 3, info, state.shards());
      } catch (const CheckpointError& e) {
        error = e.what();
      }
      const std::lock_guard lock(mu);
      errors.push_back(error);
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
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

TEST_F(OwnerTest, OnlyTheJobThatCameLastSavesAndItsTemporaryFilesAreLeftAlone) {
  ASSERT_TRUE(TakeOwnership(files_, directory_, kJob).ok());
  EXPECT_EQ(ErrorOfSave(files_, Of(kJob, 10)), "");
  ASSERT_TRUE(TakeOwnership(files_, directory_, "other").ok());
  std::filesystem::create_directories(Path(20) + ".tmp.1");
  EXPECT_EQ(
      ErrorOfSave(files_, Of(kJob, 20)),
      "checkpoint: rank 0: checkpoint.directory " + directory_ +
          " belongs to job other since that started; job 0123456789ab cannot save there any more: give every "
          "job a directory of its own");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-20.tmp.1"));
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 20)), "");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10", "step-20"));
}

TEST_F(OwnerTest, AJobThatComesInTheMiddleOfASaveEndsIt) {
  ASSERT_TRUE(TakeOwnership(files_, directory_, kJob).ok());
  RacingFiles files("/manifest.json", [&] { ASSERT_TRUE(TakeOwnership(files_, directory_, "other").ok()); });
  EXPECT_THAT(ErrorOfSave(files, Of(kJob, 10)), HasSubstr("belongs to job other"));
  EXPECT_EQ(Newest().path, "");
  EXPECT_EQ(ErrorOfSave(files_, Of("other", 10)), "");
  EXPECT_THAT(Names(), ElementsAre(".owner", "step-10"));
  EXPECT_EQ(ReadInfo(files_, Path(10)).job, "other");
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
