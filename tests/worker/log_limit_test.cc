// SPDX-License-Identifier: Apache-2.0
#include "worker/log_limit.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/regular_file.h"
#include "tests/platform/temporary_folder.h"
#include "worker/log_reader.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;

constexpr int64_t kMib = int64_t{1} << 20;

// A log to which a rank appends numbered lines of 1 KiB.
class LogLimitTest : public testing::Test {
 protected:
  void Print(int lines) {
    for (int i = 0; i < lines; ++i) {
      const std::string head = absl::StrCat("line ", ++last_, " ");
      const std::string line = head + std::string(1023 - head.size(), '.') + "\n";
      ASSERT_EQ(write(rank_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
  }

  int64_t DiskBytesOfLog() const {
    struct stat info;
    EXPECT_EQ(stat(path_.c_str(), &info), 0);
    return info.st_blocks * 512;
  }

  LogReader Reader(int64_t lines) {
    absl::StatusOr<LogReader> reader = LogReader::Open(file_.get(), lines);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *reader;
  }

  // Everything there is now.
  static std::string ReadAll(LogReader& reader) {
    std::string all;
    std::string piece;
    do {
      EXPECT_TRUE(reader.Read(64 << 10, piece).ok());
      all += piece;
    } while (!piece.empty());
    return all;
  }

  platform::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/rank-0.log";
  platform::Descriptor rank_ = *platform::OpenRegularFile(path_, O_WRONLY | O_CREAT | O_APPEND, 0644);
  platform::Descriptor file_ = *platform::OpenRegularFile(path_, O_RDONLY);
  int last_ = 0;
};

TEST_F(LogLimitTest, ShortLogStays) {
  Print(500);
  EXPECT_EQ(*TrimLog(path_, kMib), 0);
  LogReader reader = Reader(0);
  EXPECT_EQ(ReadAll(reader).size(), 500U << 10);
}

TEST_F(LogLimitTest, ALongLogKeepsItsNewestLines) {
  for (int i = 0; i < 20; ++i) {
    Print(1000);
    ASSERT_TRUE(TrimLog(path_, 2 * kMib).ok());
    ASSERT_LE(DiskBytesOfLog(), 2 * kMib);
  }
  LogReader reader = Reader(0);
  const std::vector<std::string> lines = absl::StrSplit(ReadAll(reader), '\n', absl::SkipEmpty());
  ASSERT_GT(lines.size(), 1000U);
  EXPECT_THAT(lines[0], HasSubstr("KiB of this log were dropped here"));
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t number = static_cast<size_t>(last_) - (lines.size() - 1 - i);
    ASSERT_TRUE(absl::StartsWith(lines[i], absl::StrCat("line ", number, " "))) << lines[i].substr(0, 20);
  }
  LogReader tail = Reader(3);
  EXPECT_TRUE(absl::StartsWith(ReadAll(tail), "line 19998 "));
}

TEST_F(LogLimitTest, FollowerLearnsWhatItMissed) {
  Print(10);
  LogReader reader = Reader(0);
  ReadAll(reader);
  Print(6000);
  ASSERT_GT(*TrimLog(path_, 2 * kMib), 0);
  const std::string after = ReadAll(reader);
  EXPECT_THAT(after.substr(0, 200), HasSubstr("were dropped here"));
  Print(1);
  EXPECT_TRUE(absl::StartsWith(ReadAll(reader), "line 6011 "));
}

// On a file system without holes.
TEST_F(LogLimitTest, FollowerSurvivesAnEmptiedLog) {
  Print(3000);
  LogReader reader = Reader(0);
  ReadAll(reader);
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  Print(2);
  const std::vector<std::string> lines = absl::StrSplit(ReadAll(reader), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr("were dropped here"));
  EXPECT_TRUE(absl::StartsWith(lines[1], "line 3002 ")) << "the first may be a part of a line";
}

TEST(LogRoomTest, LogsTakeHalfASmallDisk) {
  EXPECT_EQ(MostLogBytes(64 * kMib, 1), 16 * kMib);
  EXPECT_EQ(MostLogBytes(64 * kMib, 8), 2 * kMib);
  EXPECT_EQ(MostLogBytes(64 * kMib, 1000), kMib);
  EXPECT_EQ(MostLogBytes(int64_t{1} << 40, 8), 64 * kMib);
  EXPECT_EQ(MostEndedLogBytes(64 * kMib), 16 * kMib);
  EXPECT_EQ(MostEndedLogBytes(int64_t{1} << 40), 4096 * kMib);
}

}  // namespace
}  // namespace tandem::worker
