// SPDX-License-Identifier: Apache-2.0
#include "worker/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/platform/forwarding_files.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/temporary_folder.h"
#include "worker/processes.h"

namespace tandem::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const AttemptKey kSecondAttempt{.job = "j", .attempt = 2};
const absl::Time kNow = absl::FromUnixSeconds(1000);

class RecordsTest : public testing::Test {
 protected:
  ~RecordsTest() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  Records Open() {
    absl::StatusOr<Records> records = Records::Open(platform::SystemFiles(), folder_);
    EXPECT_TRUE(records.ok()) << records.status();
    return *std::move(records);
  }

  // A process that stays, as a trainer of a daemon that died.
  ProcessId StartProcess() {
    const pid_t child = fork();
    if (child == 0) {
      while (true) {
        pause();
      }
    }
    children_.push_back(child);
    return *Identify(child);
  }

  // Writes the record of the ranks of kSecondAttempt.
  static void WriteRanks(Records& records, const std::map<int, ProcessId>& ranks = {{0, {}}}) {
    ASSERT_TRUE(records.WriteRanks(kSecondAttempt, {"store", ranks}).ok());
  }

  static bool IsGone(const ProcessId& process) { return !Identify(process.pid).ok(); }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  std::vector<pid_t> children_;
};

TEST_F(RecordsTest, IrregularLockFileIsNamed) {
  for (const std::string kind : platform::kIrregularKinds) {
    const std::string path = folder_ + "/lock";
    std::filesystem::remove_all(path);
    platform::PutIrregularFile(kind, path);
    EXPECT_EQ(Records::Open(platform::SystemFiles(), folder_).status(),
              absl::InvalidArgumentError("open " + path + ": it is " + kind + ", not a regular file"));
  }
  std::filesystem::remove_all(folder_ + "/lock");
}

TEST_F(RecordsTest, ASecondDaemonOnTheFolderIsRefused) {
  std::optional<Records> first = Open();
  const absl::Status second = Records::Open(platform::SystemFiles(), folder_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_THAT(std::string(second.message()), HasSubstr("with pid " + std::to_string(getpid())));
  first.reset();
  EXPECT_TRUE(Records::Open(platform::SystemFiles(), folder_).ok());
}

TEST_F(RecordsTest, NothingIsRecoveredFromAnEmptyFolder) {
  Records records = Open();
  EXPECT_THAT(*records.Recover("w1", kNow), IsEmpty());
}

TEST_F(RecordsTest, LeftoversAreKilledAndReportedLost) {
  const ProcessId leftover = StartProcess();
  Records records = Open();
  WriteRanks(records, {{0, leftover}, {3, {}}});
  const std::vector<v1::AttemptStatus> ends = *records.Recover("w1", kNow);
  ASSERT_THAT(ends, SizeIs(1));
  const v1::AttemptStatus& end = ends.front();
  EXPECT_TRUE(end.ended());
  EXPECT_EQ(KeyOf(end.id()), kSecondAttempt);
  ASSERT_EQ(end.ranks_size(), 2);
  EXPECT_TRUE(end.ranks(0).exited());
  EXPECT_EQ(end.store_id(), "store") << "which alone may have it forgotten";
  EXPECT_EQ(end.ranks(0).cause().reason(), "WorkerLost");
  EXPECT_EQ(end.ranks(0).cause().class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(end.ranks(1).rank(), 3) << "one that had not started yet is accounted for too";
  EXPECT_TRUE(IsGone(leftover));
}

TEST_F(RecordsTest, ReusedProcessNumberIsLeftAlone) {
  ProcessId process = StartProcess();
  const ProcessId real = process;
  process.start_time -= 1;
  Records records = Open();
  WriteRanks(records, {{0, process}});
  EXPECT_THAT(*records.Recover("w1", kNow), SizeIs(1));
  EXPECT_FALSE(IsGone(real));
}

TEST_F(RecordsTest, EndIsReturnedUntilForgotten) {
  v1::AttemptStatus end;
  *end.mutable_id() = IdOf(kSecondAttempt);
  end.set_ended(true);
  end.add_ranks()->mutable_cause()->set_message("it was the disk");
  {
    Records records = Open();
    WriteRanks(records);
    ASSERT_TRUE(records.WriteEnd(end).ok());
  }
  for (int i = 0; i < 2; ++i) {
    Records records = Open();
    const absl::StatusOr<std::vector<v1::AttemptStatus>> ends = records.Recover("w1", kNow);
    ASSERT_THAT(*ends, SizeIs(1));
    EXPECT_EQ(ends->front().ranks(0).cause().message(), "it was the disk");
  }
  Records records = Open();
  ASSERT_TRUE(records.Forget(kSecondAttempt).ok());
  EXPECT_THAT(*records.Recover("w1", kNow), IsEmpty());
}

TEST_F(RecordsTest, MetricsPathsAreKnownUntilForgotten) {
  Records records = Open();
  ASSERT_TRUE(records
                  .WriteRanks(kSecondAttempt,
                              {"store", {{0, {}}}, {.directory = "/d", .first_step = 3, .last_step = 7}})
                  .ok());
  const auto places = records.MetricsPlaces();
  ASSERT_TRUE(places.ok()) << places.status();
  ASSERT_THAT(*places, SizeIs(1));
  EXPECT_EQ(places->at(kSecondAttempt).directory, "/d");
  EXPECT_EQ(places->at(kSecondAttempt).first_step, 3);
  EXPECT_EQ(places->at(kSecondAttempt).last_step, 7);
  ASSERT_TRUE(records.Forget(kSecondAttempt).ok());
  EXPECT_THAT(*records.MetricsPlaces(), IsEmpty());
}

void ExpectAnEndWithoutRanks(Records& records) {
  const absl::StatusOr<std::vector<v1::AttemptStatus>> ends = records.Recover("w1", kNow);
  ASSERT_TRUE(ends.ok()) << ends.status();
  ASSERT_THAT(*ends, SizeIs(1));
  EXPECT_EQ(ends->front().ranks_size(), 0);
}

TEST_F(RecordsTest, ATornRecordIsAnEndWithoutRanks) {
  Records records = Open();
  WriteRanks(records);
  ASSERT_TRUE(
      platform::SystemFiles().Write(folder_ + "/attempts/j/attempt-2/ranks.json", "{\"boot\": ").ok());
  ExpectAnEndWithoutRanks(records);
}

// Files of which one cannot be read, as on a disk that fails or where too many are open.
class UnreadableFile : public platform::ForwardingFiles {
 public:
  explicit UnreadableFile(std::string name) : name_(std::move(name)) {}
  absl::StatusOr<std::string> Read(const std::string& path) override {
    return path.ends_with(name_) ? absl::UnknownError("read " + path + ": Input/output error")
                                 : ForwardingFiles::Read(path);
  }

 private:
  const std::string name_;
};

TEST_F(RecordsTest, UnreadableRecordIsNotReplaced) {
  v1::AttemptStatus end;
  *end.mutable_id() = IdOf(kSecondAttempt);
  const std::string file = folder_ + "/attempts/j/attempt-2/ended.pb";
  {
    Records records = Open();
    WriteRanks(records);
    ASSERT_TRUE(records.WriteEnd(end).ok());
  }
  for (const std::string name : {"/ended.pb", "/ranks.json"}) {
    if (name == "/ranks.json") {
      std::filesystem::remove(file);
    }
    UnreadableFile files(name);
    absl::StatusOr<Records> records = Records::Open(files, folder_);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_THAT(records->Recover("w1", kNow).status().message(), HasSubstr(name + ": Input/output error"));
  }
  EXPECT_FALSE(std::filesystem::exists(file)) << "a leftover may run";
}

TEST_F(RecordsTest, HugeRecordIsAnEndWithoutRanks) {
  Records records = Open();
  WriteRanks(records);
  for (const char* name : {"ranks.json", "ended.pb"}) {
    const std::string path = folder_ + "/attempts/j/attempt-2/" + name;
    ASSERT_TRUE(platform::SystemFiles().Write(path, "{").ok());
    std::filesystem::resize_file(path, uintmax_t{1} << 40);  // sparse
  }
  ExpectAnEndWithoutRanks(records);
}

TEST_F(RecordsTest, AForgottenAttemptLeavesNoFolderOfRecords) {
  Records records = Open();
  WriteRanks(records);
  ASSERT_TRUE(records.Forget(kSecondAttempt).ok());
  EXPECT_THAT(*platform::SystemFiles().List(folder_ + "/attempts"), IsEmpty());
}

// The logs of ended attempts, of 10 bytes each.
class LogLimitsTest : public RecordsTest {
 protected:
  // Attempts 1 to `count` of one job, written one after the other, none forgotten yet.
  void WriteAttempts(Records& records, int count) {
    for (int i = 1; i <= count; ++i) {
      const AttemptKey attempt{.job = "j", .attempt = i};
      ASSERT_TRUE(records.WriteRanks(attempt, {"store", {{0, {}}}}).ok());
      const std::string log = records.LogFile({attempt, 0});
      ASSERT_TRUE(platform::SystemFiles().Write(log, "0123456789").ok());
      std::filesystem::last_write_time(log, first_ + std::chrono::seconds(i));
    }
  }
  std::vector<std::string> Kept() { return *platform::SystemFiles().List(folder_ + "/logs/j"); }
  Records OpenWith(const LogLimits& limits) {
    return *Records::Open(platform::SystemFiles(), folder_, limits);
  }

  const std::filesystem::file_time_type first_ =
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
};

TEST_F(LogLimitsTest, TheNewestAreKept) {
  Records records = OpenWith({.attempts = 2});
  WriteAttempts(records, 4);
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(records.Forget({.job = "j", .attempt = i}).ok());
  }
  EXPECT_THAT(Kept(), ElementsAre("attempt-3", "attempt-4"));
}

TEST_F(LogLimitsTest, NewestLogStaysHoweverLarge) {
  {
    Records records = OpenWith({.bytes = 25});
    WriteAttempts(records, 4);
    for (int i = 1; i <= 4; ++i) {
      ASSERT_TRUE(records.Forget({.job = "j", .attempt = i}).ok());
    }
    EXPECT_THAT(Kept(), ElementsAre("attempt-3", "attempt-4"));
  }
  Records records = OpenWith({.bytes = 1});
  ASSERT_TRUE(records.Forget({.job = "j", .attempt = 4}).ok());
  EXPECT_THAT(Kept(), ElementsAre("attempt-4"));
}

TEST_F(LogLimitsTest, UnacknowledgedRecordsAreNeverRemoved) {
  Records records = OpenWith({.attempts = 1});
  WriteAttempts(records, 4);
  ASSERT_TRUE(records.Forget({.job = "j", .attempt = 3}).ok());
  ASSERT_TRUE(records.Forget({.job = "j", .attempt = 4}).ok());
  EXPECT_THAT(Kept(), ElementsAre("attempt-1", "attempt-2", "attempt-4")) << "1 and 2 keep their records";
  ASSERT_TRUE(records.Forget({.job = "j", .attempt = 1}).ok());
  EXPECT_THAT(Kept(), ElementsAre("attempt-2", "attempt-4"));
}

TEST_F(LogLimitsTest, JobsFolderGoesWithItsLastLog) {
  Records records = OpenWith({.attempts = 1});
  WriteAttempts(records, 1);
  const AttemptKey other{.job = "k", .attempt = 1};
  ASSERT_TRUE(records.WriteRanks(other, {"store", {{0, {}}}}).ok());
  ASSERT_TRUE(platform::SystemFiles().Write(records.LogFile({other, 0}), "new").ok());
  ASSERT_TRUE(records.Forget({.job = "j", .attempt = 1}).ok());
  ASSERT_TRUE(records.Forget(other).ok());
  EXPECT_THAT(*platform::SystemFiles().List(folder_ + "/logs"), ElementsAre("k"));
}

}  // namespace
}  // namespace tandem::worker
