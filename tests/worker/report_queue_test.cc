// SPDX-License-Identifier: Apache-2.0
#include "worker/report_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/platform/fake_clock.h"

namespace tandem::worker {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

v1::StepReport Report(int64_t step, int num_norms = 0) {
  v1::StepReport report;
  report.set_step(step);
  report.set_loss(2.5);
  for (int i = 0; i < num_norms; ++i) {
    report.mutable_norms()->add_weight(1.5);
  }
  return report;
}

ReportBuffer Buffer(const ReportLimits& limits = {}) {
  v1::AttemptId id;
  id.set_job_id("j");
  id.set_attempt(3);
  return ReportBuffer(id, limits);
}

TEST(ReportQueueTest, BatchWaitsForTimeOrSize) {
  ReportBuffer buffer = Buffer();
  EXPECT_FALSE(buffer.Next(kStart, false).has_value());
  buffer.Add(Report(1), kStart);
  buffer.Add(Report(2), kStart + absl::Milliseconds(60));
  EXPECT_EQ(buffer.DueAt(), kStart + absl::Milliseconds(100));
  EXPECT_FALSE(buffer.Next(kStart + absl::Milliseconds(99), false).has_value());
  const std::optional<v1::ReportBatch> batch = buffer.Next(kStart + absl::Milliseconds(100), false);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->reports_size(), 2);
  EXPECT_EQ(batch->seq(), 1u);
  EXPECT_EQ(batch->id().attempt(), 3);
  EXPECT_FALSE(buffer.Next(kStart + absl::Seconds(1), true).has_value()) << "sent once";
  for (int i = 0; i < 40; ++i) {
    buffer.Add(Report(3 + i, 1000), kStart + absl::Seconds(1));
  }
  EXPECT_EQ(buffer.DueAt(), absl::InfinitePast()) << "more than 256 kB";
  const std::optional<v1::ReportBatch> full = buffer.Next(kStart + absl::Seconds(1), false);
  EXPECT_GT(full->reports_size(), 25);
  EXPECT_LE(full->ByteSizeLong(), size_t{260} << 10);
  EXPECT_EQ(full->seq(), 2u);
}

TEST(ReportQueueTest, FlushDoesNotWait) {
  ReportBuffer buffer = Buffer();
  buffer.Add(Report(1), kStart);
  EXPECT_TRUE(buffer.Next(kStart, true).has_value());
}

TEST(ReportQueueTest, AReportLargerThanABatchGoesAlone) {
  ReportBuffer buffer = Buffer({.batch_bytes = 100});
  buffer.Add(Report(1, 1000), kStart);
  buffer.Add(Report(2, 1000), kStart);
  EXPECT_EQ(buffer.Next(kStart, false)->reports_size(), 1);
  EXPECT_EQ(buffer.Next(kStart, false)->reports(0).step(), 2);
}

TEST(ReportQueueTest, ATableLargerThanABatchGoesAlone) {
  ReportBuffer buffer = Buffer({.batch_bytes = 1000});
  v1::ParameterTable table;
  table.set_digest(std::string(1000, 't'));
  buffer.AddTable(table);
  buffer.Add(Report(1, 100), kStart);
  buffer.Add(Report(2, 100), kStart);
  const std::optional<v1::ReportBatch> first = buffer.Next(kStart, true);
  EXPECT_TRUE(first->has_table());
  EXPECT_EQ(first->reports_size(), 0);
  EXPECT_EQ(buffer.Next(kStart, true)->reports(0).step(), 1);
  EXPECT_EQ(buffer.Next(kStart, true)->reports(0).step(), 2);
  EXPECT_EQ(buffer.DueAt(), absl::InfiniteFuture());
}

TEST(ReportQueueTest, UnacknowledgedBatchesAreResentWithTheTable) {
  ReportBuffer buffer = Buffer();
  v1::ParameterTable table;
  table.set_digest("t");
  buffer.AddTable(table);
  for (int64_t step : {1, 2, 3}) {
    buffer.Add(Report(step), kStart);
    const std::optional<v1::ReportBatch> batch = buffer.Next(kStart, true);
    EXPECT_EQ(batch->has_table(), step == 1);
  }
  buffer.Acked(1);
  EXPECT_FALSE(buffer.empty());
  buffer.Restart();
  const std::optional<v1::ReportBatch> again = buffer.Next(kStart, true);
  ASSERT_EQ(again->reports_size(), 2);
  EXPECT_EQ(again->reports(0).step(), 2);
  EXPECT_EQ(again->table().digest(), "t");
  EXPECT_EQ(again->seq(), 4u);
  buffer.Acked(4);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0u);
}

TEST(ReportQueueTest, OverflowDropsNormsBeforeReports) {
  const size_t scalars = Report(1).ByteSizeLong();
  const size_t with_norms = Report(1, 100).ByteSizeLong();
  ReportBuffer buffer = Buffer({.buffer_bytes = 3 * with_norms});
  for (int64_t step = 1; step <= 3; ++step) {
    buffer.Add(Report(step, 100), kStart);
  }
  EXPECT_EQ(buffer.dropped_norms(), 0);
  buffer.Add(Report(4, 100), kStart);
  buffer.Add(Report(5, 100), kStart);
  EXPECT_EQ(buffer.dropped_norms(), 3) << "of the oldest; their scalars need room too";
  EXPECT_EQ(buffer.dropped_reports(), 0);
  EXPECT_LE(buffer.bytes(), 3 * with_norms);
  const int64_t room = static_cast<int64_t>(3 * with_norms / scalars);
  for (int64_t step = 6; step <= room + 10; ++step) {
    buffer.Add(Report(step), kStart);
  }
  EXPECT_EQ(buffer.dropped_norms(), 5);
  EXPECT_GE(buffer.dropped_reports(), 10);
  EXPECT_LE(buffer.bytes(), 3 * with_norms);
  const std::optional<v1::ReportBatch> batch = buffer.Next(kStart, true);
  EXPECT_EQ(batch->dropped_norms(), 5);
  EXPECT_EQ(batch->dropped_reports(), buffer.dropped_reports());
  EXPECT_EQ(batch->reports(0).step(), buffer.dropped_reports() + 1) << "the oldest are gone, in order";
}

TEST(ReportQueueTest, DroppingWhatWasSentKeepsTheOrder) {
  ReportBuffer buffer = Buffer({.buffer_bytes = 4 * Report(1).ByteSizeLong()});
  for (int64_t step = 1; step <= 3; ++step) {
    buffer.Add(Report(step), kStart);
  }
  EXPECT_EQ(buffer.Next(kStart, true)->reports_size(), 3);
  for (int64_t step = 4; step <= 6; ++step) {
    buffer.Add(Report(step), kStart);
  }
  const std::optional<v1::ReportBatch> batch = buffer.Next(kStart, true);
  EXPECT_EQ(batch->reports(0).step(), 4);
  EXPECT_EQ(batch->dropped_reports(), 2);
  buffer.Acked(2);
  EXPECT_TRUE(buffer.empty());
}

TEST(ReportQueueTest, RecoveredReportsThatAreNotTakenAreDropped) {
  platform::FakeClock clock;
  ReportQueue queue(clock, {});
  queue.AddRecovered({"a", 1}, {Report(1)});
  EXPECT_TRUE(queue.Next().has_value());
  clock.Advance(absl::Minutes(9));
  queue.Acked({});  // of another attempt
  EXPECT_FALSE(queue.WaitUntilEmpty(absl::ZeroDuration()));
  clock.Advance(absl::Minutes(2));
  queue.Acked({});
  EXPECT_TRUE(queue.WaitUntilEmpty(absl::ZeroDuration()));
}

}  // namespace
}  // namespace tandem::worker
