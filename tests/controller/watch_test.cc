// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "controller/metrics/progress_board.h"
#include "controller/rpc/watch_reader.h"
#include "proto/names.h"
#include "proto/time.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/job_client.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::ElementsAre;

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() : store_(*Store::Open(folder_.path(), random_)), history_(*History::Open(folder_.path(), {})) {}

  void Save() { ASSERT_TRUE(driver_.Save(*store_).ok()); }
  void Report(int64_t first, int64_t last, bool norms = false, const std::string& job = "id-job") {
    v1::ReportBatch batch;
    batch.mutable_id()->set_job_id(job);
    batch.mutable_id()->set_attempt(1);
    for (int64_t step = first; step <= last; ++step) {
      v1::StepReport& report = *batch.add_reports();
      report.set_step(step);
      if (norms) {
        report.mutable_norms()->set_table_digest("t");
        report.mutable_norms()->add_weight(1);
      }
    }
    if (norms) {
      batch.mutable_table()->set_digest("t");
    }
    ASSERT_TRUE(history_->Add(batch, kStart, [](const absl::Status&) {}).ok());
  }
  std::unique_ptr<WatchReader> Open(const v1::WatchRequest& request) {
    auto reader = WatchReader::Open(*store_, *history_, progress_, request, now_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }
  void Restart() {
    store_.reset();
    history_.reset();
    store_ = *Store::Open(folder_.path(), random_);
    ASSERT_TRUE(store_->Load().ok());
    history_ = *History::Open(folder_.path(), {});
  }
  // Everything there is now, a word each; the last cursor stays.
  std::vector<std::string> Drain(WatchReader& reader, int limit = 1000) {
    std::vector<std::string> out;
    while (static_cast<int>(out.size()) < limit) {
      absl::StatusOr<std::optional<v1::WatchResponse>> next = reader.Next(now_);
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next->has_value()) {
        break;
      }
      const v1::WatchResponse& response = **next;
      cursor_ = response.cursor();
      skipped_ += response.skipped();
      switch (response.item_case()) {
        case v1::WatchResponse::kSnapshot:
          out.push_back("snapshot " + proto::ValueName(response.snapshot().state()));
          break;
        case v1::WatchResponse::kSynced:
          out.push_back("synced");
          break;
        case v1::WatchResponse::kChanged:
          out.push_back("changed " + proto::ValueName(response.changed().state()));
          break;
        case v1::WatchResponse::kEvent:
          out.push_back("event " + response.event().reason());
          break;
        case v1::WatchResponse::kReport:
          out.push_back(absl::StrCat("report ", response.report().step(),
                                     response.report().has_norms() ? " norms" : ""));
          break;
        case v1::WatchResponse::kTable:
          out.push_back("table");
          break;
        case v1::WatchResponse::kProgress:
          out.push_back(absl::StrCat("rank ", response.progress().rank(), " ",
                                     response.progress().age().seconds(), "s",
                                     response.progress().stalled() ? " stalled" : ""));
          break;
        default:
          out.push_back("?");
      }
    }
    return out;
  }

  static v1::WatchRequest OfTheJob() { return JobClient::Of<v1::WatchRequest>("job"); }

  void CancelTheJob() { driver_.Feed(Cancel{.job = "job", .reason = "CancelledByUser", .actor = "local"}); }

  void RanksExit() {
    driver_.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
    driver_.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  }

  platform::TemporaryFolder folder_;
  platform::SeededRandom random_{3};
  std::unique_ptr<Store> store_;
  std::unique_ptr<History> history_;
  Driver driver_;
  platform::FakeClock clock_{kStart};  // of the progress alone
  ProgressBoard progress_{clock_};
  absl::Time now_ = kStart;
  std::string cursor_;
  int64_t skipped_ = 0;
};

TEST_F(WatchTest, SnapshotThenSyncedThenChanges) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  std::unique_ptr<WatchReader> reader = Open(OfTheJob());
  EXPECT_THAT(Drain(*reader), ElementsAre("snapshot RUNNING", "synced"));
  EXPECT_THAT(Drain(*reader), ElementsAre());
  Report(1, 3);
  CancelTheJob();
  driver_.Feed(SubmitOf("other", 1));
  Save();
  EXPECT_THAT(Drain(*reader), ElementsAre("event CancelledByUser", "changed STOPPING"))
      << "no other job's, and no reports unless asked for";
}

TEST_F(WatchTest, AllJobsAreWatchedWithoutAName) {
  driver_.Feed(SubmitOf("one", 1));
  driver_.Feed(SubmitOf("two", 1));
  Save();
  std::unique_ptr<WatchReader> reader = Open({});
  EXPECT_THAT(Drain(*reader), ElementsAre("snapshot QUEUED", "snapshot QUEUED", "synced"));
  driver_.Connect("a", 1);
  Save();
  EXPECT_THAT(Drain(*reader), ElementsAre("event WorkerConnected", "event Placed", "changed ADMITTED",
                                          "event WaitingForSlots", "changed QUEUED"));
}

TEST_F(WatchTest, AReconnectedClientHasNoGapOrRepeat) {
  driver_.Connect("a", 1);
  driver_.Connect("b", 1);
  driver_.Feed(SubmitOf("job", 2));
  Save();
  v1::WatchRequest request = OfTheJob();
  request.set_reports(true);
  std::unique_ptr<WatchReader> whole = Open(request);
  std::unique_ptr<WatchReader> cut = Open(request);
  EXPECT_EQ(Drain(*whole), Drain(*cut));
  driver_.SayAll("a", "id-job", v1::RANK_PHASE_READY);
  driver_.SayAll("b", "id-job", v1::RANK_PHASE_READY);
  Report(1, 70);
  RanksExit();
  Save();
  const std::string synced = cursor_;
  const std::vector<std::string> expected = Drain(*whole);
  EXPECT_EQ(expected.size(), 70U + 4 + 1) << "reports, events, and the job after its last event";
  std::vector<std::string> got;
  cursor_ = synced;
  while (true) {  // one response a connection
    request.set_cursor(cursor_);
    const std::vector<std::string> next = Drain(*Open(request), 1);
    if (next.empty()) {
      break;
    }
    got.push_back(next.front());
    ASSERT_LE(got.size(), expected.size());
  }
  EXPECT_EQ(got, expected);
}

TEST_F(WatchTest, ACursorOutlivesTheController) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  Report(1, 5);
  v1::WatchRequest request = OfTheJob();
  request.set_reports(true);
  EXPECT_THAT(Drain(*Open(request)), ElementsAre("snapshot RUNNING", "synced"));
  Report(6, 8);
  request.set_cursor(cursor_);
  EXPECT_THAT(Drain(*Open(request), 2), ElementsAre("report 6", "report 7"));
  Restart();
  CancelTheJob();
  Save();
  request.set_cursor(cursor_);
  EXPECT_THAT(Drain(*Open(request), 2), ElementsAre("report 8", "event CancelledByUser"));
  Restart();
  request.set_cursor(cursor_);
  EXPECT_THAT(Drain(*Open(request)), ElementsAre("changed STOPPING"));
  EXPECT_THAT(Drain(*Open(request)), ElementsAre("changed STOPPING")) << "the same cursor, the same answer";
}

TEST_F(WatchTest, AResumedWatchDropsEndedJobs) {
  v1::WatchRequest request;
  request.set_reports(true);
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  Drain(*Open(request));
  CancelTheJob();
  RanksExit();
  Save();
  request.set_cursor(cursor_);
  Drain(*Open(request));
  const size_t following = cursor_.size();
  request.set_cursor(cursor_);
  std::unique_ptr<WatchReader> reader = Open(request);
  Report(1, 1);
  EXPECT_THAT(Drain(*reader), ElementsAre("report 1")) << "a report that comes late";
  now_ += absl::Minutes(2);
  driver_.Feed(SubmitOf("other", 1));
  Save();
  Drain(*reader);
  EXPECT_LT(cursor_.size(), following + 20) << "the cursor follows one job, not two";
}

TEST_F(WatchTest, MinIntervalConflatesAndCountsWhatItSkips) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  v1::WatchRequest request = OfTheJob();
  request.set_reports(true);
  request.mutable_min_interval()->set_seconds(1);
  std::unique_ptr<WatchReader> reader = Open(request);
  Drain(*reader);
  Report(1, 5);
  EXPECT_THAT(Drain(*reader), ElementsAre("report 5"));
  EXPECT_EQ(skipped_, 4);
  Report(6, 8);
  EXPECT_THAT(Drain(*reader), ElementsAre());
  EXPECT_EQ(reader->due(), now_ + absl::Seconds(1));
  now_ += absl::Seconds(1);
  EXPECT_THAT(Drain(*reader), ElementsAre("report 8"));
  EXPECT_EQ(skipped_, 6);
}

TEST_F(WatchTest, StandstillIsSentEachSecond) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  std::unique_ptr<WatchReader> reader = Open(OfTheJob());
  EXPECT_THAT(Drain(*reader), ElementsAre("snapshot RUNNING", "synced"));
  // The ranks' words as of `driver_.now`, where the clock of the board stands too.
  const auto look = [&](double age) {
    driver_.now += absl::Seconds(1);
    now_ = driver_.now;
    clock_.Advance(absl::Seconds(1));
    for (const auto& [worker, rank] : {std::pair("a", 0), std::pair("b", 1)}) {
      v1::AttemptStatus status = StatusOf("id-job");
      v1::RankStatus& said = AddRank(status, rank, v1::RANK_PHASE_STEPPING);
      said.set_step(7);
      said.set_step_seconds(0.1);
      *said.mutable_since_progress() = proto::ToProto(absl::Seconds(age + rank));
      driver_.Say(worker, status);
    }
    progress_.Look(driver_.state);
    return Drain(*reader);
  };
  EXPECT_THAT(look(0.5), ElementsAre()) << "it is on its way";
  EXPECT_THAT(look(2.5), ElementsAre("rank 1 3s"));
  EXPECT_EQ(reader->due(), now_ + absl::Seconds(1));
  EXPECT_THAT(Drain(*reader), ElementsAre()) << "not twice at the same time";
  EXPECT_THAT(look(4.5), ElementsAre("rank 1 5s stalled"));
  EXPECT_THAT(look(0.25), ElementsAre("rank 1 1s"));
  EXPECT_THAT(look(0.25), ElementsAre());
}

TEST_F(WatchTest, NormsComeOnRequestAfterTheirTable) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  v1::WatchRequest request = OfTheJob();
  request.set_reports(true);
  std::unique_ptr<WatchReader> plain = Open(request);
  request.set_norms(true);
  std::unique_ptr<WatchReader> norms = Open(request);
  Drain(*plain);
  Drain(*norms);
  Report(1, 2, /*norms=*/true);
  EXPECT_THAT(Drain(*plain), ElementsAre("report 1", "report 2"));
  EXPECT_THAT(Drain(*norms), ElementsAre("table", "report 1 norms", "report 2 norms"));
}

TEST_F(WatchTest, JobsTakeTurnsWithReportsThatHaveNorms) {
  driver_.Feed(SubmitOf("one", 1));
  driver_.Feed(SubmitOf("two", 1));
  Save();
  v1::WatchRequest request;
  request.set_reports(true);
  request.set_norms(true);
  std::unique_ptr<WatchReader> reader = Open(request);
  Drain(*reader);
  Report(1, 3, /*norms=*/true, "id-one");
  Report(11, 12, /*norms=*/true, "id-two");
  EXPECT_THAT(Drain(*reader, 4), ElementsAre("table", "report 1 norms", "table", "report 11 norms"));
  Report(13, 13, /*norms=*/true, "id-two");
  EXPECT_THAT(Drain(*reader),
              ElementsAre("report 2 norms", "report 12 norms", "report 3 norms", "report 13 norms"));
}

TEST_F(WatchTest, EndedJobIsFollowedUntilItsLastReport) {
  v1::WatchRequest request;
  request.set_reports(true);
  driver_.Run(v1::JOB_STATE_RUNNING);
  Save();
  Drain(*Open(request));
  Report(1, 200);
  CancelTheJob();
  RanksExit();
  Save();
  request.set_cursor(cursor_);
  std::unique_ptr<WatchReader> reader = Open(request);
  EXPECT_THAT(Drain(*reader, 2), ElementsAre("report 1", "report 2"));
  now_ += absl::Minutes(2);  // a slow client
  const std::vector<std::string> rest = Drain(*reader);
  ASSERT_GE(rest.size(), 198U);
  EXPECT_EQ(rest[197], "report 200");
}

TEST_F(WatchTest, CursorsOfOtherStoresAndNonsenseAreRefused) {
  driver_.Feed(SubmitOf("job", 1));
  Save();
  Drain(*Open({}));
  v1::WatchRequest request;
  request.set_cursor(cursor_);
  platform::TemporaryFolder elsewhere;
  auto other = Store::Open(elsewhere.path(), random_);
  EXPECT_TRUE(absl::IsOutOfRange(WatchReader::Open(**other, *history_, progress_, request, now_).status()));
  request.set_cursor("nonsense!");
  EXPECT_TRUE(
      absl::IsInvalidArgument(WatchReader::Open(*store_, *history_, progress_, request, now_).status()));
  request.clear_cursor();
  request.set_job("nobody");
  EXPECT_TRUE(absl::IsNotFound(WatchReader::Open(*store_, *history_, progress_, request, now_).status()));
}

}  // namespace
}  // namespace tandem::controller
