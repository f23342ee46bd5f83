// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/remove_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/platform/forwarding_files.h"

namespace tandem::checkpoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::SizeIs;

// The machine's files; keeps what was to be removed, in order.
class RemovalLog final : public platform::ForwardingFiles {
 public:
  absl::Status RemoveAll(const std::string& path) override {
    removed_.push_back(path);
    return ForwardingFiles::RemoveAll(path);
  }
  const std::vector<std::string>& removed() const { return removed_; }  // used by one rank

 private:
  std::vector<std::string> removed_;
};

class RemoveTogetherTest : public CheckpointTest {
 protected:
  // A folder with that many files; returns its path.
  std::string Folder(const std::string& name, int num_files) {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(path);
    for (int i = 0; i < num_files; ++i) {
      WriteAll(absl::StrFormat("%s/rank-%05d.safetensors", path, i), "content");
    }
    return path;
  }

  // Rank 0's answer. `files` has those of the ranks that do not use the machine's.
  std::vector<std::string> Remove(int ranks, const std::vector<std::string>& doomed,
                                  const std::map<int, platform::Files*>& files = {}) {
    std::vector<std::string> not_removed;
    num_collectives_.assign(static_cast<size_t>(ranks), 0);
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      const auto own = files.find(comm.rank());
      const std::vector<std::string> answer = RemoveTogether(
          own == files.end() ? files_ : *own->second, comm,
          comm.rank() == 0 ? doomed : std::vector<std::string>{}, [&](const WorkProgress& progress) {
            const std::lock_guard lock(mu_);
            progress_[comm.rank()].push_back(
                absl::StrCat(std::filesystem::path(progress.path).filename().string(), " ", progress.done,
                             " of ", progress.total));
          });
      if (comm.rank() == 0) {
        not_removed = answer;
      } else {
        EXPECT_THAT(answer, ElementsAre());
      }
      num_collectives_[static_cast<size_t>(comm.rank())] = comm.num_collectives();
    });
    return not_removed;
  }

  std::vector<uint64_t> num_collectives_;  // by rank, of the last Remove
  std::mutex mu_;
  std::map<int, std::vector<std::string>> progress_;  // by rank, of every Remove
};

TEST_F(RemoveTogetherTest, RanksShareTheRemoval) {
  for (const int ranks : {1, 2, 3, 5}) {
    const std::vector<std::string> doomed = {Folder("step-10.gone", 17), Folder("step-20.gone", 5)};
    Folder("step-30", 3);
    std::vector<RemovalLog> logs(static_cast<size_t>(ranks));
    std::map<int, platform::Files*> files;
    for (int rank = 0; rank < ranks; ++rank) {
      files[rank] = &logs[static_cast<size_t>(rank)];
    }
    EXPECT_THAT(Remove(ranks, doomed, files), ElementsAre());
    EXPECT_THAT(Names(), ElementsAre("step-30"));
    std::map<std::string, int> removals;
    for (int rank = 0; rank < ranks; ++rank) {
      int num_files = 0;
      for (const std::string& path : logs[static_cast<size_t>(rank)].removed()) {
        ++removals[path];
        num_files += path.ends_with(".safetensors") ? 1 : 0;
      }
      EXPECT_GE(num_files, 22 / ranks - 1) << "rank " << rank << " of " << ranks;
    }
    EXPECT_THAT(removals, SizeIs(17 + 5 + 2));
    for (const auto& [path, count] : removals) {
      EXPECT_EQ(count, 1) << path;
    }
    EXPECT_THAT(logs[0].removed(), Contains(doomed[0]));
    EXPECT_THAT(logs[0].removed(), Contains(doomed[1]));
  }
}

// Where ranks met only at the end, the communicator's deadline would be one for the whole removal.
TEST_F(RemoveTogetherTest, RanksMeetAfterAFewFiles) {
  for (const int parts : {1, 2, 5}) {
    const std::string folder = Folder("step-10.gone", 2 * parts * kMeetingFiles - 1);
    EXPECT_THAT(Remove(2, {folder}), ElementsAre());
    // Two for rank 0's list; one once all have looked into the folder.
    EXPECT_EQ(num_collectives_[0], static_cast<uint64_t>(2 + 1 + parts));
    EXPECT_EQ(num_collectives_[1], num_collectives_[0]);
  }
  EXPECT_THAT(Remove(2, {}), ElementsAre());
  EXPECT_EQ(num_collectives_[1], 1u) << "there is nothing to do";
}

// It may take minutes.
TEST_F(RemoveTogetherTest, EveryRankLearnsHowFarAllAre) {
  const std::vector<std::string> doomed = {Folder("a", 3 * kMeetingFiles), Folder("b", 1)};
  EXPECT_THAT(Remove(2, doomed), ElementsAre());
  EXPECT_THAT(progress_[0], ElementsAre("a 0 of 48", "a 32 of 48", "a 48 of 48", "b 0 of 1", "b 1 of 1"));
  EXPECT_EQ(progress_[1], progress_[0]);
}

// A rank that removed while another still looks would change what that one counts.
TEST_F(RemoveTogetherTest, NothingIsRemovedBeforeAllHaveLooked) {
  class Looks final : public platform::ForwardingFiles {
   public:
    explicit Looks(std::vector<std::string>& events, std::mutex& mu) : events_(events), mu_(mu) {}
    absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
      absl::StatusOr<std::vector<std::string>> names = ForwardingFiles::List(folder);
      Add("look");
      return names;
    }
    absl::Status RemoveAll(const std::string& path) override {
      Add("removal");
      return ForwardingFiles::RemoveAll(path);
    }

   private:
    void Add(const char* event) {
      const std::lock_guard lock(mu_);
      events_.push_back(event);
    }
    std::vector<std::string>& events_;
    std::mutex& mu_;
  };
  std::vector<std::string> events;
  std::mutex mu;
  Looks looks(events, mu);
  EXPECT_THAT(Remove(3, {Folder("step-10.gone", 6)}, {{0, &looks}, {1, &looks}, {2, &looks}}), ElementsAre());
  ASSERT_THAT(events, SizeIs(3 + 6 + 1));
  EXPECT_EQ(std::vector<std::string>(events.begin(), events.begin() + 3),
            std::vector<std::string>(3, "look"));
}

TEST_F(RemoveTogetherTest, RankZeroRemovesWhatOthersCannot) {
  class Blind final : public platform::ForwardingFiles {
   public:
    absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
      return absl::UnavailableError("list " + folder + ": Stale file handle");
    }
  } blind;
  class NoMemory final : public platform::ForwardingFiles {
   public:
    absl::Status RemoveAll(const std::string&) override { throw std::bad_alloc(); }
  } no_memory;
  StuckFiles stuck("/rank-");
  for (platform::Files* const files : std::initializer_list<platform::Files*>{&blind, &no_memory, &stuck}) {
    const std::vector<std::string> doomed = {Folder("step-10.gone", 9), Folder("step-20.gone", 40)};
    EXPECT_THAT(Remove(3, doomed, {{1, files}}), ElementsAre());
    EXPECT_THAT(Names(), ElementsAre());
  }
}

TEST_F(RemoveTogetherTest, UnremovableFolderIsReported) {
  const std::vector<std::string> doomed = {Folder("step-10.gone", 4), Folder("step-20.gone", 4)};
  StuckFiles stuck("/step-10.gone");
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_THAT(Remove(2, doomed, {{0, &stuck}, {1, &stuck}}),
                ElementsAre("remove " + doomed[0] + ": Device or resource busy"));
    EXPECT_THAT(Names(), ElementsAre("step-10.gone"));
  }
  EXPECT_THAT(Remove(2, doomed), ElementsAre());
  EXPECT_THAT(Names(), ElementsAre());
}

// One that is open elsewhere, as NFS sees it; it is rank 1's, of two.
TEST_F(RemoveTogetherTest, UnremovableFileIsReported) {
  const std::string folder = Folder("step-10.gone", 4);
  class OneStuck final : public platform::ForwardingFiles {
   public:
    explicit OneStuck(std::string stuck) : stuck_(std::move(stuck)) {}
    absl::Status RemoveAll(const std::string& path) override {
      return stuck_.starts_with(path) ? absl::UnavailableError("remove " + path + ": Device or resource busy")
                                      : ForwardingFiles::RemoveAll(path);
    }

   private:
    const std::string stuck_;
  } one_stuck(folder + "/rank-00003.safetensors");
  EXPECT_THAT(Remove(2, {folder}, {{0, &one_stuck}, {1, &one_stuck}}),
              ElementsAre("remove " + folder + ": Device or resource busy"));
  EXPECT_THAT(*files_.List(folder), ElementsAre("rank-00003.safetensors"));
}

// Somebody has moved a checkpoint to another disk.
TEST_F(RemoveTogetherTest, RemovesLinksButNotTargets) {
  const std::string elsewhere = Folder("elsewhere", 4);
  std::filesystem::create_symlink(elsewhere, directory_ + "/step-10.gone");
  WriteAll(directory_ + "/step-20.gone", "x");
  EXPECT_THAT(
      Remove(2, {directory_ + "/step-10.gone", directory_ + "/step-20.gone", directory_ + "/step-30"}),
      ElementsAre());
  EXPECT_THAT(Names(), ElementsAre("elsewhere"));
  EXPECT_THAT(*files_.List(elsewhere), SizeIs(4));
}

}  // namespace
}  // namespace tandem::checkpoint
