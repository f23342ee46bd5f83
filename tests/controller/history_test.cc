// SPDX-License-Identifier: Apache-2.0
#include "controller/store/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/controller/store_files.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const absl::Time kNow = absl::FromUnixSeconds(1'600'000'000);

v1::ReportBatch BatchOf(const std::string& job, int attempt, int64_t first, int64_t last, int norms = 0) {
  v1::ReportBatch out;
  out.mutable_id()->set_job_id(job);
  out.mutable_id()->set_attempt(attempt);
  for (int64_t step = first; step <= last; ++step) {
    v1::StepReport& report = *out.add_reports();
    report.set_step(step);
    report.set_attempt(attempt);
    report.set_loss(static_cast<double>(attempt) + 1.0 / static_cast<double>(step));
    if (norms > 0) {
      report.mutable_norms()->set_table_digest("t");
      for (int i = 0; i < norms; ++i) {
        report.mutable_norms()->add_weight(i);
      }
    }
  }
  return out;
}

class HistoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<History> Open(const History::Options& options = {}) {
    absl::StatusOr<std::unique_ptr<History>> history = History::Open(folder_.path(), options);
    EXPECT_TRUE(history.ok()) << history.status();
    return *std::move(history);
  }
  // Adds reports that are acknowledged some time.
  static void Add(History& history, const v1::ReportBatch& batch) {
    ASSERT_TRUE(history.Add(batch, kNow, [](const absl::Status&) {}).ok());
  }

  platform::TemporaryFolder folder_;
};

TEST_F(HistoryTest, ReportsAreAcknowledgedWhenDurable) {
  std::unique_ptr<History> history = Open();
  bool committed = false;
  ASSERT_TRUE(
      history->Add(BatchOf("j", 1, 1, 3), kNow, [&](const absl::Status& s) { committed = s.ok(); }).ok());
  EXPECT_EQ(history->After("j", {}, 10, false)->size(), 3U);
  history->Tick(kNow + absl::Milliseconds(900));
  EXPECT_FALSE(committed);
  history->Tick(kNow + absl::Milliseconds(1000));
  EXPECT_TRUE(committed);
}

TEST_F(HistoryTest, PointsWithNormsSpreadOverTheirSteps) {
  std::unique_ptr<History> history = Open();
  Add(*history, BatchOf("j", 1, 1, 9'900));
  Add(*history, BatchOf("j", 1, 9'901, 10'000, 3));
  int trimmed = 0;
  const auto reports = history->Spread("j", 0, 0, 64, [&](v1::Norms& norms) {
    ++trimmed;
    norms.clear_weight();
  });
  ASSERT_TRUE(reports.ok());
  EXPECT_GE(reports->size(), 50U);
  EXPECT_LE(reports->size(), 65U);
  EXPECT_EQ(reports->front().step(), 9'901);
  EXPECT_EQ(reports->back().step(), 10'000);
  EXPECT_EQ(trimmed, static_cast<int>(reports->size()));
  for (const v1::StepReport& report : *reports) {
    EXPECT_TRUE(report.has_norms());
    EXPECT_EQ(report.norms().weight_size(), 0);
  }
  EXPECT_EQ(history->Spread("j", 0, 0, 64)->front().step(), 1) << "without norms, over all steps";
  EXPECT_TRUE(history->Spread("j", 1, 9'900, 64, [](v1::Norms&) {})->empty());
}

// A job that goes on from a checkpoint has no reports of the steps before it.
TEST_F(HistoryTest, PointsOfAResumedJobSpreadEvenly) {
  std::unique_ptr<History> history = Open();
  Add(*history, BatchOf("j", 1, 100'001, 100'500));
  const auto reports = history->Spread("j", 0, 0, 100);
  ASSERT_TRUE(reports.ok());
  EXPECT_GE(reports->size(), 80U);
  EXPECT_LE(reports->size(), 102U);
  EXPECT_EQ(reports->front().step(), 100'001);
  EXPECT_EQ(reports->back().step(), 100'500);
}

TEST_F(HistoryTest, StrangeSecondsOfAStepCountForNothing) {
  std::unique_ptr<History> history = Open();
  v1::ReportBatch batch = BatchOf("j", 1, 1, 5);
  batch.mutable_reports(0)->set_seconds(std::nan(""));
  batch.mutable_reports(1)->set_seconds(1e300);
  batch.mutable_reports(2)->set_seconds(-5);
  batch.mutable_reports(3)->set_seconds(INFINITY);
  batch.mutable_reports(4)->set_seconds(2);
  Add(*history, batch);
  EXPECT_EQ(history->Totals("j")->seconds, 2);
  EXPECT_EQ(history->Totals("j")->steps, 5);
}

TEST_F(HistoryTest, ManyReportsAreCommittedBeforeTheirTime) {
  std::unique_ptr<History> history = Open();
  bool committed = false;
  ASSERT_TRUE(
      history->Add(BatchOf("j", 1, 1, 256), kNow, [&](const absl::Status& s) { committed = s.ok(); }).ok());
  EXPECT_FALSE(committed) << "a thread that serves does not wait for the disk";
  history->Tick(kNow);
  EXPECT_TRUE(committed);
}

TEST_F(HistoryTest, WritesToADeletedFileAreNotAcknowledged) {
  std::unique_ptr<History> history = Open();
  absl::Status committed;
  ASSERT_TRUE(history->Add(BatchOf("j", 1, 1, 3), kNow, [&](const absl::Status& s) { committed = s; }).ok());
  std::filesystem::remove_all(folder_.path());
  history->Commit();
  EXPECT_FALSE(committed.ok());
}

TEST_F(HistoryTest, TheLastStepIsADurableOne) {
  std::unique_ptr<History> history = Open();
  Add(*history, BatchOf("j", 1, 1, 3));
  EXPECT_EQ(*history->LastStep("j"), 0)
      << "a kill of the controller would lose them until they are sent again";
  history->Commit();
  EXPECT_EQ(*history->LastStep("j"), 3);
  Add(*history, BatchOf("j", 1, 4, 5));
  Add(*history, BatchOf("j", 1, 6, 6));
  EXPECT_EQ(*history->LastStep("j"), 3);
  EXPECT_EQ(history->Last("j")->step, 6) << "readers of reports see them at once";
  history->Commit();
  EXPECT_EQ(*history->LastStep("j"), 6);
}

TEST_F(HistoryTest, RepeatedStepsKeepTheHigherAttempt) {
  {
    std::unique_ptr<History> history = Open();
    for (const auto& batch :
         {BatchOf("j", 1, 1, 10), BatchOf("j", 1, 5, 10), BatchOf("j", 2, 8, 12), BatchOf("j", 1, 9, 11)}) {
      Add(*history, batch);
    }
  }
  std::unique_ptr<History> history = Open();  // also after a restart
  const auto all = *history->Range("j", 1, 0, 100, false);
  ASSERT_EQ(all.size(), 12U);
  for (const v1::StepReport& report : all) {
    EXPECT_EQ(report.attempt(), report.step() >= 8 ? 2 : 1) << report.step();
  }
  EXPECT_EQ(*history->Last("j"), (History::Position{.attempt = 2, .step = 12}));
  EXPECT_EQ(*history->LastStep("j"), 12);
  EXPECT_EQ(history->After("j", {.attempt = 1, .step = 6}, 3, false)->front().step(), 7);
  EXPECT_EQ(*history->CountAfter("j", {.attempt = 1, .step = 6}), 6);
}

TEST_F(HistoryTest, NormsStayInTheirRings) {
  std::unique_ptr<History> history = Open({.norm_bytes_of_a_job = 10'000, .norm_bytes = 15'000});
  for (int64_t step = 1; step <= 50; ++step) {  // about 800 bytes each
    Add(*history, BatchOf("a", 1, step, step, 100));
    EXPECT_LE(history->norm_bytes(), 10'000);
  }
  const auto a = *history->Range("a", 1, 0, 100, true);
  EXPECT_EQ(a.size(), 50U) << "scalars are kept";
  EXPECT_FALSE(a[0].has_norms()) << "the oldest norms went first";
  EXPECT_TRUE(a[49].has_norms());
  EXPECT_EQ(a[49].norms().weight_size(), 100);
  for (int64_t step = 1; step <= 50; ++step) {
    Add(*history, BatchOf("b", 1, step, step, 100));
    EXPECT_LE(history->norm_bytes(), 15'000);
  }
  EXPECT_TRUE(history->Range("b", 50, 50, 1, true)->front().has_norms());
  const int64_t before = history->norm_bytes();
  history.reset();
  EXPECT_EQ(Open({.norm_bytes_of_a_job = 10'000, .norm_bytes = 15'000})->norm_bytes(), before);
}

TEST_F(HistoryTest, ItemTablesAreKeptByDigest) {
  std::unique_ptr<History> history = Open();
  v1::ReportBatch batch = BatchOf("j", 1, 1, 1, 2);
  batch.mutable_table()->set_digest("t");
  batch.mutable_table()->add_parameters()->set_name("lm_head.weight");
  Add(*history, batch);
  EXPECT_EQ((*history->Table("t"))->parameters(0).name(), "lm_head.weight");
  EXPECT_FALSE(history->Table("other")->has_value());
}

// Or one worker fills the disk of the history with tables.
TEST_F(HistoryTest, OfOneJobFewTablesAreKept) {
  std::unique_ptr<History> history = Open();
  for (int i = 0; i < 20; ++i) {
    v1::ReportBatch batch = BatchOf("j", 1, i + 1, i + 1);
    batch.mutable_table()->set_digest(absl::StrCat("t", i));
    Add(*history, batch);
  }
  v1::ReportBatch other = BatchOf("other", 1, 1, 1);
  other.mutable_table()->set_digest("t19");
  Add(*history, other);
  EXPECT_TRUE(history->Table("t0")->has_value());
  EXPECT_TRUE(history->Table("t3")->has_value());
  EXPECT_FALSE(history->Table("t4")->has_value());
  EXPECT_TRUE(history->Table("t19")->has_value());
  EXPECT_EQ(history->After("j", {}, 100, false)->size(), 20U) << "the reports are";
}

TEST_F(HistoryTest, DamagedPageIsNamedWithARemedy) {
  {
    std::unique_ptr<History> history = Open();
    Add(*history, BatchOf("j", 1, 1, 100, 1000));
  }
  const std::string path = folder_.path() + "/history.db";
  DamageEachPage(path, [&](const std::string& /*damaged*/) {
    const absl::Status status = History::Open(folder_.path(), {.check_patience = absl::Minutes(1)}).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith(path), HasSubstr("move it away to go on without the old reports"),
                      Not(HasSubstr("\n"))));
  });
}

// Damage in the middle of a file that has more to read than Open waits for.
TEST_F(HistoryTest, LateFoundDamageReachesReadersAndWriters) {
  {
    std::unique_ptr<History> history = Open();
    Add(*history, BatchOf("j", 1, 1, 100, 1000));
  }
  const std::string path = folder_.path() + "/history.db";
  constexpr int64_t kPage = 4096;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(std::filesystem::file_size(path) / kPage / 2 * kPage);
  file << std::string(kPage, '\x5a') << std::flush;
  std::unique_ptr<History> history = Open({.check_patience = absl::ZeroDuration()});
  ASSERT_TRUE(history->AwaitCheck(absl::Seconds(30)));
  absl::Status committed;
  const absl::Status added =
      history->Add(BatchOf("j", 1, 101, 101), kNow, [&](const absl::Status& s) { committed = s; });
  for (const absl::Status& status :
       {history->After("j", {}, 10, false).status(), history->CountAfter("j", {}).status(),
        history->Newest("j", {}, false).status(), history->Range("j", 1, 0, 10, false).status(),
        history->Table("t").status(), history->Last("j").status(), history->LastStep("j").status(), added,
        committed}) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find("move it away to go on without the old reports"), std::string::npos)
        << status;
  }
  v1::Job job;
  job.set_id("j");
  job.set_last_step(90);
  EXPECT_TRUE(FillLastStep(*history, job).ok()) << "the row of the job can be shown all the same";
  EXPECT_EQ(job.last_step(), 90);
}

TEST_F(HistoryTest, CheckedFileIsWrittenAsBefore) {
  const std::string path = folder_.path() + "/history.db";
  std::unique_ptr<History> history = Open({.check_patience = absl::ZeroDuration()});
  Add(*history, BatchOf("j", 1, 1, 256, 1000));  // perhaps while it is checked
  ASSERT_TRUE(history->AwaitCheck(absl::Seconds(30)));
  Add(*history, BatchOf("j", 1, 257, 512, 1000));
  history->Commit();
  EXPECT_GT(std::filesystem::file_size(path), 1 << 20) << "the log is moved to the file again";
  EXPECT_EQ(history->Range("j", 1, 0, 1000, false)->size(), 512U);
}

// A history that a kill ended with three commits in its log.
class HistoryDamageTest : public HistoryTest {
 protected:
  HistoryDamageTest() {
    const std::string live = folder_.path() + "/live";
    std::filesystem::create_directories(live);
    std::unique_ptr<History> history = History::Open(live, {}).value();
    for (int64_t step = 1; step <= 3; ++step) {
      Add(*history, BatchOf("j", 1, step, step));
      history->Commit();
    }
    std::filesystem::copy(live, killed_);
  }
  // How many commits a start misses, and steps that are there then.
  void ExpectLost(int64_t lost, int64_t steps) {
    const std::unique_ptr<History> history = History::Open(killed_, {}).value();
    EXPECT_EQ(history->lost_commits(), lost);
    EXPECT_EQ(history->CountAfter("j", {}).value(), steps);
  }

  const std::string killed_ = folder_.path() + "/killed";
};

TEST_F(HistoryDamageTest, AKillLosesNothing) { ExpectLost(0, 3); }

TEST_F(HistoryDamageTest, AFlippedBitInTheLogIsNoticed) {
  std::fstream log(killed_ + "/history.db-wal", std::ios::in | std::ios::out | std::ios::binary);
  log.seekp(-100, std::ios::end);
  log << 'Z' << std::flush;
  ExpectLost(1, 2);
  ExpectLost(0, 2);
}

TEST_F(HistoryDamageTest, ARemovedLogIsNoticed) {
  std::filesystem::remove(killed_ + "/history.db-wal");
  ExpectLost(3, 0);
}

TEST_F(HistoryDamageTest, ARemovedHistoryIsNoticed) {
  std::filesystem::remove(killed_ + "/history.db");
  std::filesystem::remove(killed_ + "/history.db-wal");
  ExpectLost(3, 0);
}

TEST_F(HistoryDamageTest, HistoryOfAnOlderBuildHasNoCount) {
  std::filesystem::remove(killed_ + "/history.commits");
  ExpectLost(0, 3);
}

TEST_F(HistoryDamageTest, ADamagedCountIsNoDamageOfReports) {
  for (const std::string& damage : {std::string("tandem-commits 1 x y\n"), std::string(1000, 'x')}) {
    std::ofstream(killed_ + "/history.commits") << damage;
    ExpectLost(0, 3);
    std::filesystem::remove(killed_ + "/history.db-wal");  // is noticed again
    std::filesystem::remove(killed_ + "/history.db");
    ExpectLost(3, 0);
    std::filesystem::remove_all(killed_);
    std::filesystem::copy(folder_.path() + "/live", killed_);
  }
}

TEST_F(HistoryDamageTest, CountIsReadableByItsOwnerOnly) {
  const auto mode = std::filesystem::status(killed_ + "/history.commits").permissions();
  EXPECT_EQ(mode & std::filesystem::perms::owner_all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(HistoryTest, RunningCheckEndsWithTheHistory) {
  {
    std::unique_ptr<History> history = Open();
    for (int64_t step = 1; step < 5000; step += 100) {
      Add(*history, BatchOf("j", 1, step, step + 99, 1000));
    }
  }
  for (int i = 0; i < 20; ++i) {
    Open({.check_patience = absl::ZeroDuration()});
  }
  EXPECT_EQ(Open()->CountAfter("j", {}).value(), 5000);
}

TEST_F(HistoryTest, ForeignFileIsNamedWithARemedy) {
  std::ofstream(folder_.path() + "/history.db") << std::string(5000, 'x');
  EXPECT_EQ(History::Open(folder_.path(), {}).status().message(),
            folder_.path() +
                "/history.db: SQLite: file is not a database; move it away to go on without the old reports");
}

}  // namespace
}  // namespace tandem::controller
