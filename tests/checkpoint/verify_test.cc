// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/work_together.h"
#include "platform/files.h"
#include "platform/xxh3.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/elements_of.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/watched_files.h"

namespace tandem::checkpoint {
namespace {

using testing::_;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

std::vector<ManifestFile> SizedFiles(const std::vector<int64_t>& bytes) {
  std::vector<ManifestFile> files;
  for (const int64_t size : bytes) {
    files.push_back({.name = "", .bytes = size, .digest = ""});
  }
  return files;
}

std::vector<int64_t> CountsOf(const std::vector<int64_t>& bytes, int ranks) {
  std::vector<int64_t> counts;
  int64_t next = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const fsdp::Range range = FilesOfRank(SizedFiles(bytes), rank, ranks);
    EXPECT_EQ(range.begin, next) << rank;  // every file is one rank's
    next = range.end;
    counts.push_back(range.size());
  }
  EXPECT_EQ(next, static_cast<int64_t>(bytes.size()));
  return counts;
}

TEST(FilesOfRankTest, RanksReadAboutAsManyBytes) {
  EXPECT_THAT(CountsOf({9, 9, 9, 9}, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(CountsOf({9, 9, 9, 9}, 2), ElementsAre(2, 2));
  EXPECT_THAT(CountsOf({9, 9, 9, 9}, 3), ElementsAre(1, 2, 1));
  EXPECT_THAT(CountsOf({9, 9}, 4), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(CountsOf({90, 10, 10, 10, 10, 10, 10, 10, 10, 10}, 2), ElementsAre(1, 9));
  EXPECT_THAT(CountsOf({0, 0, 0}, 2), ElementsAre(3, 0));
  EXPECT_THAT(CountsOf({}, 2), ElementsAre(0, 0));
  EXPECT_THAT(CountsOf({1, 1, 1}, 2), ElementsAre(2, 1));
}

class VerifyTest : public CheckpointTest {
 protected:
  // A whole checkpoint of `step` that has no arrays, but that many files of a byte.
  void PutFiles(int64_t step, int num_files) {
    std::filesystem::create_directories(Path(step));
    Manifest manifest{.info = InfoOf(step)};
    for (int i = 0; i < num_files; ++i) {
      const std::string name = absl::StrFormat("rank-%05d.safetensors", i);
      WriteAll(Path(step) + "/" + name, "x");
      manifest.files.push_back({.name = name, .bytes = 1, .digest = platform::Xxh3Of("x")});
    }
    WriteAll(Path(step) + "/manifest.json", WriteManifest(manifest).text);
  }

  static int NumSized(const WatchedFiles& files) {
    int num_looks = 0;
    for (const auto& [path, count] : files.sized()) {
      num_looks += path.ends_with(".safetensors") ? count : 0;
    }
    return num_looks;
  }

  // The error of each of `ranks` ranks that look for the newest; empty: it has found one.
  std::vector<std::string> ErrorsOfNewest(int ranks, const FilesOfRanks& files) {
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      errors[static_cast<size_t>(comm.rank())] = ErrorOf<CheckpointUnreadable>([&] {
        FindNewest(FilesOf(files, comm), comm, directory_, /*after=*/-1,
                   {.skipped = [](const std::string& path,
                                  const std::string&) { ADD_FAILURE() << path << " was passed over"; },
                    .verified = [](const WorkProgress&) {}});
      });
    });
    return errors;
  }
};

TEST_F(VerifyTest, RanksShareTheReading) {
  SaveOn(files_, directory_, 4, 10);
  for (const int ranks : {1, 2, 3, 4, 6}) {
    std::vector<std::unique_ptr<WatchedFiles>> watched;
    FilesOfRanks files;
    for (int rank = 0; rank < ranks; ++rank) {
      files[rank] = watched.emplace_back(std::make_unique<WatchedFiles>()).get();
    }
    EXPECT_EQ(Newest(ranks, files).path, Path(10));
    std::map<std::string, int64_t> read;
    for (const auto& own : watched) {
      int64_t bytes = 0;
      for (const auto& [path, count] : own->read()) {
        if (path.ends_with(".safetensors")) {
          read[path] += count;
          bytes += count;
        }
      }
      EXPECT_TRUE(bytes > 0 || ranks > 4);
    }
    EXPECT_EQ(read.size(), 4u);
    for (const auto& [path, count] : read) {
      EXPECT_EQ(count, static_cast<int64_t>(std::filesystem::file_size(path))) << path << " on " << ranks;
    }
  }
}

// A checkpoint of 65,536 ranks has as many files. On a network file system each look takes some milliseconds:
// the others would wait for rank 0 in one collective for minutes.
TEST_F(VerifyTest, RanksShareTheSizeChecks) {
  constexpr int kMeetings = 3;
  constexpr int kFiles = 2 * kMeetings * kMeetingFiles;
  PutFiles(10, kFiles);
  std::vector<WatchedFiles> watched(2);
  std::vector<int> meetings(2);
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const auto progress = [&](const WorkProgress& now) {
      EXPECT_EQ(now.path, Path(10));
      EXPECT_EQ(now.total, kFiles);
      EXPECT_EQ(now.done, ++meetings[rank] < kMeetings ? 0 : kFiles) << "sizes first";
      EXPECT_EQ(NumSized(watched[rank]), meetings[rank] * kMeetingFiles);
    };
    EXPECT_TRUE(VerifyTogether(watched[rank], comm, Path(10), progress).ok());
  });
  EXPECT_THAT(meetings, Each(kMeetings));
  std::map<std::string, int> looks;
  for (const WatchedFiles& own : watched) {
    for (const auto& [path, count] : own.sized()) {
      looks[path] += count;
    }
  }
  looks.erase(Path(10) + "/manifest.json");
  EXPECT_EQ(looks.size(), static_cast<size_t>(kFiles));
  EXPECT_THAT(looks, Each(Pair(_, 1)));
}

// To look at them takes seconds, to read them minutes.
TEST_F(VerifyTest, WrongSizeIsFoundBeforeReading) {
  PutFiles(10, 3);
  PutFiles(20, 3 * kMeetingFiles);
  const std::string last = absl::StrFormat("%s/rank-%05d.safetensors", Path(20), 3 * kMeetingFiles - 1);
  WatchedFiles watched;
  WriteAll(last, "yz");
  EXPECT_EQ(Newest(1, {{0, &watched}}).path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("it has 2 bytes, the manifest says 1")));
  std::filesystem::remove(last);
  EXPECT_EQ(Newest(1, {{0, &watched}}).path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre("step-20: open " + last + ": No such file or directory"));
  EXPECT_THAT(watched.read(), Not(Contains(Pair(HasSubstr("/step-20/rank-"), _))));
}

TEST_F(VerifyTest, DamageInAnyShareIsEveryRanksVerdict) {
  SaveOn(files_, directory_, 4, 10);
  SaveOn(files_, directory_, 4, 20);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = absl::StrCat("rank-0000", rank, ".safetensors");
    const std::string file = Path(20) + "/" + name;
    const std::string content = ReadAll(file);
    const auto expect_verdict = [&](const std::string& reason) {
      for (const int ranks : {1, 2, 4}) {
        EXPECT_EQ(Newest(ranks).path, Path(10));
        EXPECT_THAT(skipped_, ElementsAre("step-20: " + reason));
      }
    };
    std::string flipped = content;
    flipped.back() ^= 1;
    WriteAll(file, flipped);
    expect_verdict(name + ": its digest does not match the manifest");
    WriteAll(file, content + "x");
    expect_verdict(
        absl::StrCat(name, ": it has ", content.size() + 1, " bytes, the manifest says ", content.size()));
    std::filesystem::remove(file);
    expect_verdict("open " + file + ": No such file or directory");
    WriteAll(file, content);
  }
  EXPECT_EQ(Newest(4).path, Path(20));
}

// Its machine has lost the file system for a moment, or sees an older state of it: no reason to go on from an
// older checkpoint.
TEST_F(VerifyTest, UnreadableByOneRankIsNoDamage) {
  SaveOn(files_, directory_, 4, 10);
  SaveOn(files_, directory_, 4, 20);
  const std::string misread =
      ", but rank 0 reads it as it should be: the machine of rank 2 misreads it, or has another file there";
  for (const int error : {ESTALE, EIO, ENOENT}) {
    for (const std::string name : {"/manifest.json", "/rank-00002.safetensors"}) {
      UnreadableFiles unreadable("/step-20" + name, error);
      for (const std::string& text : ErrorsOfNewest(4, {{2, &unreadable}})) {
        const bool judged = error == ENOENT && name.starts_with("/rank");
        EXPECT_EQ(text, "checkpoint " + Path(20) +
                            " cannot be read now, which does not say that it is damaged: rank 2: open " +
                            Path(20) + name + ": " + strerror(error) + (judged ? misread : "") +
                            "; try again when it can be, move it away, or name another with "
                            "checkpoint.resume");
      }
      EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
    }
  }
}

// Bad memory, or a cache that another machine's has not: the others would go on from an older checkpoint, and
// the machine would stay in the job.
TEST_F(VerifyTest, MisreadingRankIsNamed) {
  SaveOn(files_, directory_, 4, 10);
  SaveOn(files_, directory_, 4, 20);
  ReplacedFiles misread;
  misread.read_range = [&](const std::string& path, int64_t begin, int64_t bytes) {
    absl::StatusOr<std::string> content = files_.ReadRange(path, begin, bytes);
    if (path.find("/step-20/rank-") != std::string::npos && content.ok()) {
      content->back() ^= 1;
    }
    return content;
  };
  for (const int ranks : {2, 3, 4}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const int second = (rank + ranks / 2) % ranks;
      for (const std::string& text : ErrorsOfNewest(ranks, {{rank, &misread}})) {
        EXPECT_THAT(text, HasSubstr(absl::StrCat("damaged: rank ", rank, ": rank-0000")));
        EXPECT_THAT(text, HasSubstr(absl::StrCat(
                              ".safetensors: its digest does not match the manifest, but rank ", second,
                              " reads it as it should be: the machine of rank ", rank, " misreads it")));
      }
    }
  }
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
}

// Its cache is of a time when the file was not there, or not done. Rank 0 is no better than the others.
TEST_F(VerifyTest, RankSeeingOtherFilesIsNamed) {
  SaveOn(files_, directory_, 4, 10);
  SaveOn(files_, directory_, 4, 20);
  ReplacedFiles longer;
  longer.size = [&](const std::string& path) {
    absl::StatusOr<int64_t> bytes = files_.Size(path);
    if (path.find("/step-20/rank-") != std::string::npos && bytes.ok()) {
      ++*bytes;
    }
    return bytes;
  };
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = absl::StrCat("rank-0000", rank, ".safetensors");
    UnreadableFiles missing("/step-20/" + name, ENOENT);
    const int64_t bytes = *files_.Size(Path(20) + "/" + name);
    const std::pair<platform::Files*, std::string> cases[] = {
        {&missing, absl::StrCat("open ", Path(20), "/", name, ": No such file or directory")},
        {&longer, absl::StrCat(name, ": it has ", bytes + 1, " bytes, the manifest says ", bytes)}};
    for (const auto& [files, reason] : cases) {
      for (const std::string& text : ErrorsOfNewest(4, {{rank, files}})) {
        EXPECT_THAT(text, HasSubstr(absl::StrCat("damaged: rank ", rank, ": ", reason, ", but rank ",
                                                 (rank + 2) % 4, " reads it as it should be")));
      }
    }
  }
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-20"));
}

TEST_F(VerifyTest, DifferingManifestsDecideNothing) {
  SaveOn(files_, directory_, 2, 10);
  SaveOn(files_, directory_, 2, 20);
  Manifest manifest = *ReadFolderManifest(files_, Path(20));
  manifest.info.attempt = 7;
  ReplacedFiles old;
  old.read = [&](const std::string& path) -> absl::StatusOr<std::string> {
    return path.ends_with("/step-20/manifest.json") ? WriteManifest(manifest).text : files_.Read(path);
  };
  for (const std::string& text : ErrorsOfNewest(2, {{1, &old}})) {
    EXPECT_THAT(text, HasSubstr("damaged: rank 1: it sees another manifest.json than rank 0; try again"));
  }
}

TEST_F(VerifyTest, ShortReadIsNoDamage) {
  SaveOn(files_, directory_, 2, 10);
  ReplacedFiles files;
  files.read_range = [&](const std::string& path, int64_t begin, int64_t) {
    return files_.ReadRange(path, begin, 5);
  };
  const int64_t bytes = *files_.Size(Path(10) + "/rank-00001.safetensors");
  for (const std::string& text : ErrorsOfNewest(2, {{1, &files}})) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(
                          "damaged: rank 1: rank-00001.safetensors: it ends at byte 5, and should have ",
                          bytes, ", as it had before")));
  }
}

// That a file is not what it should be is a fact, whatever the others could not read.
TEST_F(VerifyTest, DamageGoesBeforeWhatCannotBeRead) {
  SaveOn(files_, directory_, 4, 10);
  SaveOn(files_, directory_, 4, 20);
  const std::string damaged = Path(20) + "/rank-00003.safetensors";
  std::string content = ReadAll(damaged);
  content.back() ^= 1;
  WriteAll(damaged, content);
  UnreadableFiles unreadable("/step-20/rank-00001.safetensors", ESTALE);
  EXPECT_EQ(Newest(4, {{1, &unreadable}}).path, Path(10));
  EXPECT_THAT(skipped_, ElementsAre(StartsWith("step-20: rank-00003.safetensors: its digest")));
}

TEST_F(VerifyTest, RankWithoutMemoryIsNotAwaited) {
  SaveOn(files_, directory_, 2, 10);
  ReplacedFiles files;
  files.read_range = [](const std::string&, int64_t, int64_t) -> absl::StatusOr<std::string> {
    throw std::bad_alloc();
  };
  for (const std::string& text : ErrorsOfNewest(2, {{1, &files}})) {
    EXPECT_THAT(text, HasSubstr("damaged: rank 1: std::bad_alloc; try again"));
  }
}

// Rank 1 has more to read than is read between two meetings. Where ranks met only at the end, the
// communicator's deadline would be one for the whole checkpoint.
TEST_F(VerifyTest, RanksMeetWhileOneOfThemStillReads) {
  constexpr int64_t kLarge = 2 * kMeetingBytes + 1;
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    const at::Tensor part = at::zeros({comm.rank() == 0 ? 1 : kLarge}, at::kByte);
    SaveShards(
        files_, comm, directory_, 10,
        {{.name = "w", .shape = {kLarge + 1}, .begin = comm.rank() == 0 ? 0 : 1, .data = ElementsOf(part)}});
  });
  absl::Notification met;
  int64_t read = 0;
  WatchedFiles rank_one([&](const std::string& path) {
    if (path.ends_with("/rank-00001.safetensors") && (read += 16 << 20) > kMeetingBytes) {
      met.WaitForNotification();  // this rank reads on when the other one is back from a meeting
    }
  });
  std::vector<std::vector<int64_t>> done(2);
  comm::RunThreadRanks(2, [&](comm::Communicator& comm) {
    platform::Files& files = comm.rank() == 1 ? static_cast<platform::Files&>(rank_one) : files_;
    const auto progress = [&](const WorkProgress& now) {
      EXPECT_EQ(now.path, Path(10));
      EXPECT_GE(now.total, kLarge);
      done[static_cast<size_t>(comm.rank())].push_back(now.done);
      if (comm.rank() == 0 && !met.HasBeenNotified()) {
        met.Notify();
      }
    };
    EXPECT_TRUE(VerifyTogether(files, comm, Path(10), progress).ok());
  });
  EXPECT_EQ(done[0].size(), 3u);
  EXPECT_EQ(done[0], done[1]);
  EXPECT_TRUE(std::is_sorted(done[0].begin(), done[0].end(), std::less_equal<>())) << "each moves";
}

}  // namespace
}  // namespace tandem::checkpoint
