// SPDX-License-Identifier: Apache-2.0
#include "trainer/job_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/job_folder.h"
#include "comm/communicator.h"
#include "platform/files.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Where a job starts that goes on from a checkpoint which its spec names.
class NamedStartTest : public checkpoint::CheckpointTest {
 protected:
  NamedStartTest() { checkpoint::SaveOn(files_, directory_, 2, 10); }

  // A second attempt of the job that saved there, which goes on as `resume` says.
  ResumeOptions Goes(const std::string& resume) const {
    return {.self = checkpoint::OwnerOf(checkpoint::InfoOf(0, /*attempt=*/2)),
            .directory = directory_,
            .resume = resume,
            .last_step = 100,
            .parameters = {{"array0", {1000}}, {"array1", {64}}, {"array2", {7}}},
            .weights_dtype = "F32"};
  }

  // Starts that job on ranks, of which `files` has those that do not use the machine's, and gives the
  // directory back. Returns what rank 0 has.
  JobStart Start(const ResumeOptions& options, int ranks = 2,
                 const std::map<int, platform::Files*>& files = {}) {
    JobStart first;
    moves_.assign(static_cast<size_t>(ranks), 0);
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      const auto own = files.find(comm.rank());
      checkpoint::HeldLease lease;
      JobStart start = StartJob(own == files.end() ? files_ : *own->second, comm, options, lease,
                                {.lost = [](const std::string& reason) { ADD_FAILURE() << reason; },
                                 .moved = [&] { ++moves_[static_cast<size_t>(comm.rank())]; }});
      if (comm.rank() == 0) {
        first = std::move(start);
      }
      lease.Release();
    });
    return first;
  }

  static std::vector<std::string> MessagesOf(const JobStart& start) {
    std::vector<std::string> messages;
    for (const v1::CheckpointWarning& warning : start.warnings) {
      messages.push_back(warning.message());
    }
    return messages;
  }

  // What becomes of each of `ranks` ranks of another job that names step 10.
  std::vector<std::string> Starts(int ranks, const std::map<int, platform::Files*>& files) {
    ResumeOptions options = Goes(Path(10));
    options.self = {.job = "second", .name = "", .host = ""};
    options.directory.clear();
    std::vector<std::string> starts(static_cast<size_t>(ranks));
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      const auto own = files.find(comm.rank());
      checkpoint::HeldLease lease;
      std::string& start = starts[static_cast<size_t>(comm.rank())];
      try {
        const JobStart job = StartJob(own == files.end() ? files_ : *own->second, comm, options, lease,
                                      {.lost = [](const std::string&) {}, .moved = [] {}});
        start = absl::StrCat("step ", job.from.info.step);
      } catch (const UserError& error) {
        start = absl::StrCat("user: ", error.what());
      } catch (const checkpoint::CheckpointUnreadable& error) {
        start = absl::StrCat("unreadable: ", error.what());
      }
    });
    return starts;
  }

  std::vector<int> moves_;  // by rank of the last Start
  const std::string manifest_ = Path(10) + "/manifest.json";
};

TEST_F(NamedStartTest, EveryRankGoesOnFromIt) {
  EXPECT_THAT(Starts(3, {}), Each("step 10"));
  EXPECT_THAT(Starts(1, {}), Each("step 10"));
}

// The next attempt may find it; a user's error ends the job.
TEST_F(NamedStartTest, MomentaryReadErrorIsNotTheUsers) {
  for (const int error : {ESTALE, EIO, EMFILE, ETIMEDOUT}) {
    checkpoint::UnreadableFiles unreadable("/manifest.json", error);
    EXPECT_THAT(Starts(2, {{1, &unreadable}}),
                Each(absl::StrCat("unreadable: checkpoint ", Path(10),
                                  " cannot be read now, which does not say that it is damaged: rank 1: open ",
                                  manifest_, ": ", strerror(error),
                                  "; try again when it can be, move it away, or name another with "
                                  "checkpoint.resume")));
  }
  checkpoint::ReplacedFiles no_memory;
  no_memory.read = [](const std::string&) -> absl::StatusOr<std::string> { throw std::bad_alloc(); };
  EXPECT_THAT(Starts(2, {{1, &no_memory}}),
              Each(HasSubstr("which does not say that it is damaged: rank 1: std::bad_alloc; try again")));
}

// Rank 0 reads it twice, and has told the others that it is there.
TEST_F(NamedStartTest, RankZerosReadErrorIsNotTheUsers) {
  for (const int ranks : {1, 2}) {
    int reads = 0;
    checkpoint::ReplacedFiles once;
    once.read = [&](const std::string& path) -> absl::StatusOr<std::string> {
      return reads++ == 0 ? files_.Read(path)
                          : absl::NotFoundError("open " + path + ": No such file or directory");
    };
    EXPECT_THAT(
        Starts(ranks, {{0, &once}}),
        Each(absl::StrCat("unreadable: checkpoint ", Path(10),
                          " cannot be read now, which does not say that it is damaged: open ", manifest_,
                          ": No such file or directory; try again when it can be, move it away, or "
                          "name another with checkpoint.resume")));
    EXPECT_EQ(reads, 2);
  }
}

TEST_F(NamedStartTest, MissingOrForbiddenCheckpointIsTheUsersError) {
  for (const int error : {ENOENT, EACCES}) {
    checkpoint::UnreadableFiles unreadable("/manifest.json", error);
    EXPECT_THAT(Starts(2, {{1, &unreadable}}),
                Each(absl::StrCat("user: checkpoint.resume: checkpoint ", Path(10),
                                  " is not the same for every rank: rank 1: open ", manifest_, ": ",
                                  strerror(error), "; name a folder that all workers share")));
  }
}

// A folder of each machine's own.
TEST_F(NamedStartTest, DifferingCheckpointIsTheUsersError) {
  const std::string other = root_ + "/other";
  checkpoint::SaveOn(files_, other, 1, 10);
  std::string content = checkpoint::ReadAll(other + "/step-10/manifest.json");
  checkpoint::ReplacedFiles elsewhere;
  elsewhere.read = [&](const std::string&) { return content; };
  EXPECT_THAT(Starts(2, {{1, &elsewhere}}),
              Each(absl::StrCat("user: checkpoint.resume: checkpoint ", Path(10),
                                " is not the same for every rank: rank 1: it sees another manifest.json "
                                "than rank 0; name a folder that all workers share")));
  content = "{";
  EXPECT_THAT(Starts(2, {{1, &elsewhere}}),
              Each(HasSubstr("is not the same for every rank: rank 1: manifest.json")));
}

// It reads none of them, and there may be thousands.
TEST_F(NamedStartTest, ExaminingCheckpointsIsProgress) {
  checkpoint::SaveOn(files_, directory_, 2, 20);
  checkpoint::SaveOn(files_, directory_, 2, 30);
  const JobStart start = Start(Goes(""));
  EXPECT_EQ(start.from.path, "");
  EXPECT_THAT(start.whole, ElementsAre(10, 20, 30));
  EXPECT_THAT(moves_, ElementsAre(3, 3));
}

// They take up space, and whoever looks for them asks why they are neither removed nor gone on from.
TEST_F(NamedStartTest, PartialCheckpointsAreNamedAtTheStart) {
  for (const int64_t step : {20, 30, 40, 50, 60}) {
    checkpoint::SaveOn(files_, directory_, 2, step);
  }
  for (const int64_t step : {10, 20, 30, 40, 50}) {
    checkpoint::WriteAll(Path(step) + "/manifest.json", "damage");
  }
  const JobStart start = Start(Goes(""));
  EXPECT_THAT(start.whole, ElementsAre(60));
  const std::string reason = " (manifest.json: it does not begin with its digest)";
  EXPECT_THAT(
      MessagesOf(start),
      ElementsAre("checkpoint.keep neither counts nor removes what is not known to be whole: step-50" +
                  reason + "; step-40" + reason + "; step-30" + reason +
                  "; 2 more; remove it if it is not wanted"));
}

// A job that goes on from one that it names looks whether later ones are another job's.
TEST_F(NamedStartTest, LaterDamagedCheckpointsAreNamed) {
  checkpoint::SaveOn(files_, directory_, 2, 20);
  const std::string file = Path(20) + "/rank-00000.safetensors";
  std::string content = checkpoint::ReadAll(file);
  content.back() ^= 1;
  checkpoint::WriteAll(file, content);
  const JobStart start = Start(Goes(Path(10)));
  EXPECT_THAT(start.whole, ElementsAre(10));
  EXPECT_THAT(MessagesOf(start), ElementsAre(HasSubstr("what is not known to be whole: step-20 does not "
                                                       "verify (rank-00000.safetensors")));
}

// A resume that reads it has said so already.
TEST_F(NamedStartTest, SkippedCheckpointIsNamedOnce) {
  checkpoint::SaveOn(files_, directory_, 2, 20);
  checkpoint::WriteAll(Path(20) + "/manifest.json", "damage");
  const JobStart start = Start(Goes("newest"));
  EXPECT_EQ(start.from.info.step, 10);
  ASSERT_EQ(start.warnings.size(), 1u);
  EXPECT_EQ(start.warnings[0].problem(), v1::CHECKPOINT_PROBLEM_PASSED_OVER);
}

// It may take minutes: the ranks are not to look as if they hung.
TEST_F(NamedStartTest, RemovingLeftoversIsProgress) {
  const std::string left = Path(20) + ".tmp.1.dead";
  std::filesystem::create_directories(left);
  for (int i = 0; i < 3 * checkpoint::kMeetingFiles; ++i) {
    checkpoint::WriteAll(absl::StrCat(left, "/rank-", i), "");
  }
  checkpoint::WriteAll(directory_ + "/.owner",
                       R"({"job": "dead", "name": "", "attempt": 1, "host": "gone"})");
  Start(Goes(""));
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_THAT(moves_, ElementsAre(4, 4)) << "three of the removal, one of step 10";
}

// Those that ranks have left which were killed; a young one may be of a job that starts now.
TEST_F(NamedStartTest, StartRemovesOldTokens) {
  for (const std::string name : {".same-folder.", ".owner."}) {
    for (const std::string age : {"old", "young"}) {
      const std::string path = absl::StrCat(directory_, "/", name, age);
      checkpoint::WriteAll(path, age);
      if (age == "old") {
        std::filesystem::last_write_time(
            path, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(61));
      }
    }
  }
  for (const int ranks : {1, 2}) {
    Start(Goes(""), ranks);
    EXPECT_THAT(*files_.List(directory_), ElementsAre(".owner.young", ".same-folder.young", "step-10"))
        << ranks << " ranks";
  }
}

TEST_F(NamedStartTest, FullDiskIsTheMachinesFault) {
  checkpoint::FaultyFiles full(checkpoint::FaultyFiles::Fault::kFullDisk, 1);
  try {
    Start(Goes("newest"), 2, {{0, &full}});
    ADD_FAILURE() << "it started";
  } catch (const std::exception& error) {
    const Failure failure = Describe(std::current_exception());
    EXPECT_EQ(failure.cause.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
    EXPECT_THAT(failure.cause.message(),
                testing::MatchesRegex("checkpoint.directory: rank 0 cannot write there: write " + directory_ +
                                      "/.*: No space left on device; make room on that file system, or use "
                                      "another folder"));
  }
  EXPECT_THAT(*files_.List(directory_), ElementsAre("step-10")) << "its token is gone";
}

// Where the file system of the checkpoints is not mounted, their directory is made beneath.
TEST_F(NamedStartTest, NewestWithoutADirectoryWarns) {
  ResumeOptions options = Goes("newest");
  options.directory = root_ + "/mount/run";
  EXPECT_THAT(MessagesOf(Start(options)),
              ElementsAre("checkpoint.resume: newest: made " + options.directory +
                          ", in which there is no checkpoint, and starts from step 1; if one should be "
                          "there, is its file system mounted?"));
  EXPECT_THAT(MessagesOf(Start(options)), ElementsAre());
}

}  // namespace
}  // namespace tandem::trainer
