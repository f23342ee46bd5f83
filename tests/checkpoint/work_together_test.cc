// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/work_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/write_together.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/platform/forwarding_files.h"

namespace tandem::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string TextOf(int rank) { return std::string(static_cast<size_t>(rank), 'x'); }

TEST(ExchangeTest, EveryRankGetsEveryText) {
  comm::RunThreadRanks(3, [](comm::Communicator& comm) {
    EXPECT_THAT(ExchangeTexts(comm, TextOf(comm.rank())), ElementsAre("", "x", "xx"));
    EXPECT_THAT(ExchangeTexts(comm, ""), ElementsAre("", "", ""));
    EXPECT_EQ(TextOfRankZero(comm, std::to_string(comm.rank())), "0");
  });
}

// Those of a thousand ranks about their files are hundreds of megabytes.
TEST(ExchangeTest, GatherReachesOnlyRankZero) {
  comm::RunThreadRanks(3, [](comm::Communicator& comm) {
    const std::vector<std::string> texts = GatherTexts(comm, TextOf(comm.rank()));
    const std::vector<std::string> empty = GatherTexts(comm, "");
    if (comm.rank() == 0) {
      EXPECT_THAT(texts, ElementsAre("", "x", "xx"));
      EXPECT_THAT(empty, ElementsAre("", "", ""));
    } else {
      EXPECT_THAT(texts, IsEmpty());
      EXPECT_THAT(empty, IsEmpty());
    }
  });
}

constexpr WritingPace kFast = {.between_meetings = absl::Milliseconds(1)};
constexpr absl::Duration kPatience = absl::Seconds(30);

// The machine's files; calls a function when a file is written, or the folder synced, before it does that.
class SlowFiles final : public platform::ForwardingFiles {
 public:
  std::function<void(int part)> before_part = [](int) {};  // from 0; that which ends the file is one too
  std::function<void()> before_end = [] {};

  absl::Status WriteParts(const std::string& path,
                          const std::function<absl::StatusOr<std::string_view>()>& next) override {
    int part = 0;
    const absl::Status written = files_.WriteParts(path, [&] {
      before_part(part++);
      return next();
    });
    if (written.ok()) {
      before_end();
    }
    return written;
  }
};

// Parts that are a text each.
class Texts {
 public:
  explicit Texts(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  absl::StatusOr<std::string_view> operator()() {
    thread_ = std::this_thread::get_id();
    return next_ == texts_.size() ? std::string_view() : std::string_view(texts_[next_++]);
  }
  size_t given() const { return next_; }
  std::thread::id thread() const { return thread_; }  // that asked last

 private:
  const std::vector<std::string> texts_;
  size_t next_ = 0;
  std::thread::id thread_;
};

class WriteTogetherTest : public CheckpointTest {
 protected:
  WriteTogetherTest() { std::filesystem::create_directories(directory_); }

  std::string PathOf(int rank) const { return absl::StrCat(directory_, "/", rank); }

  absl::Status Write(platform::Files& files, comm::Communicator& comm,
                     const std::function<absl::StatusOr<std::string_view>()>& next,
                     const WritingPace& pace = kFast) const {
    return WriteTogether(files, comm, directory_, PathOf(comm.rank()), next, pace);
  }
};

// Waits until the others have met `meetings` times more, which only they can while this one has not come.
void AwaitMeetings(const comm::Communicator& comm, uint64_t meetings) {
  const uint64_t first = comm.num_ended();
  const absl::Time deadline = absl::Now() + kPatience;
  while (comm.num_ended() < first + meetings && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_GE(comm.num_ended(), first + meetings) << "the ranks do not meet";
}

TEST_F(WriteTogetherTest, EveryRankWritesItsParts) {
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    Texts texts(std::vector<std::string>(static_cast<size_t>(comm.rank()), "part"));
    EXPECT_TRUE(Write(files_, comm, std::ref(texts)).ok());
    EXPECT_EQ(texts.thread(), std::this_thread::get_id()) << "which has the device and its stream";
  });
  EXPECT_EQ(ReadAll(PathOf(0)), "");
  EXPECT_EQ(ReadAll(PathOf(1)), "part");
  EXPECT_EQ(ReadAll(PathOf(2)), "partpart");
}

// The communicator's deadline must not be one for the file of the slowest rank.
TEST_F(WriteTogetherTest, RanksMeetWhileOneOfThemStillWrites) {
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    SlowFiles files;
    if (comm.rank() == 1) {
      files.before_part = [&](int part) {
        if (part == 1) {
          AwaitMeetings(comm, 3);
        }
      };
    }
    Texts texts({"a", "b"});
    EXPECT_TRUE(Write(files, comm, std::ref(texts)).ok());
  });
  EXPECT_EQ(ReadAll(PathOf(1)), "ab");
}

TEST_F(WriteTogetherTest, RanksMeetWhileOneOfThemStillSyncs) {
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    SlowFiles files;
    if (comm.rank() == 1) {
      files.before_end = [&] { AwaitMeetings(comm, 3); };
    }
    Texts texts({"a"});
    EXPECT_TRUE(Write(files, comm, std::ref(texts)).ok());
  });
}

// The deadline is for it.
TEST_F(WriteTogetherTest, HangingDiskStopsTheMeetings) {
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    SlowFiles files;
    uint64_t met = 0;
    if (comm.rank() == 1) {
      files.before_end = [&] {
        const uint64_t first = comm.num_ended();
        absl::SleepFor(absl::Milliseconds(30));
        met = comm.num_ended() - first;
      };
    }
    Texts texts({"a"});
    EXPECT_TRUE(Write(files, comm, std::ref(texts),
                      {.between_meetings = absl::Milliseconds(1), .standstill = absl::ZeroDuration()})
                    .ok());
    EXPECT_LE(met, 1u);
  });
}

TEST_F(WriteTogetherTest, OneRanksFailureStopsTheOthers) {
  class Broken final : public platform::ForwardingFiles {
   public:
    absl::Status Write(const std::string& path, std::string_view) override {
      return absl::ResourceExhaustedError("write " + path + ": No space left on device");
    }
  } broken;
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    // More than anybody waits for.
    const auto endless = []() -> absl::StatusOr<std::string_view> { return "part"; };
    Texts texts({"a"});
    const absl::Status written =
        comm.rank() == 1 ? Write(broken, comm, std::ref(texts)) : Write(files_, comm, endless);
    EXPECT_EQ(written, comm.rank() == 1
                           ? absl::ResourceExhaustedError("write " + PathOf(1) + ": No space left on device")
                           : absl::OkStatus());
  });
}

TEST_F(WriteTogetherTest, ThrowingPartsAreTheRanksError) {
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    const auto next = [&]() -> absl::StatusOr<std::string_view> {
      if (comm.rank() == 1) {
        throw std::bad_alloc();
      }
      return "part";
    };
    EXPECT_EQ(Write(files_, comm, next).ok(), comm.rank() == 0);
  });
}

TEST_F(WriteTogetherTest, LostRankEndsTheWriting) {
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    if (comm.rank() == 1) {
      comm.Abort();
      return;
    }
    EXPECT_THROW(
        Write(files_, comm, []() -> absl::StatusOr<std::string_view> { return "part"; }).IgnoreError(),
        comm::CommError);
  });
}

// The files of a save are these.
TEST_F(WriteTogetherTest, SavingRanksMeetDuringAWrite) {
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    SlowFiles files;
    if (comm.rank() == 1) {
      files.before_part = [&](int part) {
        if (part == 0) {
          AwaitMeetings(comm, 1);
        }
      };
    }
    WholeSteps whole;
    SaveShare(files, comm, FolderAt(directory_), 3, InfoOf(10), whole);
  });
  EXPECT_THAT(Names(), ElementsAre("step-10"));
  EXPECT_TRUE(LoadsAs(Path(10), 2, 10));
}

}  // namespace
}  // namespace tandem::checkpoint
