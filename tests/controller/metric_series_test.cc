// SPDX-License-Identifier: Apache-2.0
// Which series a scrape has of a job, and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "controller/metrics/metrics.h"
#include "tests/controller/metrics_fixture.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using MetricSeriesTest = MetricsTest;

TEST_F(MetricSeriesTest, OnlySparseJobsHaveSeriesOfExperts) {
  metrics_->Report("id-1", "dense", ReportOf(1));
  v1::StepReport report = ReportOf(1);
  (*report.mutable_scalars())["moe_balance_loss"] = 1.25;
  (*report.mutable_scalars())["moe_z_loss"] = 3;
  (*report.mutable_scalars())["model_flops_utilization"] = 0.5;  // of a device whose peak is known
  (*report.mutable_scalars())["moe_largest_load"] = 2.5;
  (*report.mutable_scalars())["moe_idle"] = 7;
  (*report.mutable_scalars())["moe_dropped"] = 11;
  (*report.mutable_scalars())["moe_further_passes"] = 13;
  for (int layer = 0; layer < 100; ++layer) {
    report.mutable_norms()->add_experts()->set_layer(layer);
  }
  metrics_->Report("id-2", "sparse", report);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("tandem_train_moe_balance_loss{job_name=\"sparse\"} 1.25"));
  EXPECT_THAT(text, HasSubstr("tandem_train_moe_z_loss{job_name=\"sparse\"} 3"));
  EXPECT_THAT(text, HasSubstr("tandem_train_moe_largest_load{job_name=\"sparse\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("tandem_train_moe_idle_experts{job_name=\"sparse\"} 7"));
  EXPECT_THAT(text, HasSubstr("tandem_train_moe_dropped_tokens{job_name=\"sparse\"} 11"));
  EXPECT_THAT(text, HasSubstr("tandem_train_moe_further_passes{job_name=\"sparse\"} 13"));
  EXPECT_THAT(text, HasSubstr("tandem_train_mfu_ratio{job_name=\"sparse\"} 0.5"));
  EXPECT_THAT(text, Not(HasSubstr("tandem_train_mfu_ratio{job_name=\"dense\"}")));
  EXPECT_EQ(CountLines(text, "tandem_train_moe_"), 6);
}

TEST_F(MetricSeriesTest, AShortJobsReportsCountAfterItsEnd) {
  driver_.Run(v1::JOB_STATE_STARTING);
  driver_.state.jobs.Change("id-job", [](JobEntry& entry) {
    entry.job.mutable_resolved()->mutable_training()->set_sequence_length(100);
  });
  SayReady({{"gather", 100}});
  metrics_->JobEnded(driver_.Job());
  driver_.state.jobs = {};
  metrics_->Look(driver_.state);
  metrics_->Report("id-job", "job", ReportOf(1));
  EXPECT_THAT(Text(), HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"gather\"} 200\n"));
  EXPECT_THAT(Text(), HasSubstr("tandem_train_samples_total{job_name=\"job\"} 10\n"));
  clock_.Advance(absl::Minutes(6));
  EXPECT_THAT(Text(), Not(HasSubstr("job_name"))) << "they end with the others of ended jobs";
  metrics_->Report("id-job", "job", ReportOf(2), clock_.Now() - absl::Minutes(6));
  EXPECT_THAT(Text(), Not(HasSubstr("job_name")));
}

TEST_F(MetricSeriesTest, LateReportDoesNotTakeTheNameBack) {
  metrics_->JobEnded(JobOf("id-1", "headers"));
  clock_.Advance(absl::Seconds(1));
  driver_.Connect("a", 1);
  driver_.Feed(SubmitOf("headers", 1));
  metrics_->Look(driver_.state);
  metrics_->Report("id-headers", "headers", ReportOf(7));
  metrics_->Report("id-1", "headers", ReportOf(9));  // its stream has not heard of the end
  metrics_->Report("id-1", "headers", ReportOf(9), clock_.Now());
  EXPECT_THAT(Text(), HasSubstr("tandem_train_step{job_name=\"headers\"} 7\n"));
}

TEST_F(MetricSeriesTest, RestartSeparatesLiveJobsFromLateReports) {
  // The controller has not looked yet.
  metrics_->Report("id-2", "headers", ReportOf(7));
  metrics_->Report("id-1", "headers", ReportOf(9), clock_.Now());
  EXPECT_THAT(Text(), HasSubstr("tandem_train_step{job_name=\"headers\"} 7\n"));
}

TEST_F(MetricSeriesTest, SeriesOfAnUnknownEndLeaveToo) {
  metrics_->Report("id-1", "headers",
                   ReportOf(1));  // a store that stands still does not tell that it has ended
  metrics_->Look(State());
  EXPECT_THAT(Text(), HasSubstr("headers"));
  clock_.Advance(absl::Minutes(6));
  EXPECT_THAT(Text(), Not(HasSubstr("headers")));
}

TEST_F(MetricSeriesTest, SeriesOfSentBytesAreBounded) {
  driver_.Run(v1::JOB_STATE_STARTING);
  std::map<std::string, double> sent_bytes;
  for (int i = 0; i < 1000; ++i) {
    sent_bytes[absl::StrCat("purpose-", i)] = i % 2 == 0 ? 1 : -1;
  }
  SayReady(sent_bytes);
  metrics_->Report("id-job", "job", ReportOf(1));
  EXPECT_EQ(CountLines(Text(), "tandem_comm_bytes_total{"), 16);
}

TEST_F(MetricSeriesTest, TrainingSeriesLastFiveMinutesLonger) {
  metrics_->Report("id-1", "headers", ReportOf(1));
  metrics_->Report("id-1", "headers", ReportOf(2));
  metrics_->Report("id-1", "headers", ReportOf(2));  // sent twice
  metrics_->commit_seconds.Observe(0.0002);
  metrics_->RpcStarted("/tandem.v1.Jobs/Submit");
  metrics_->RpcHandled("/tandem.v1.Jobs/Submit", "OK", absl::Milliseconds(2));
  metrics_->queue_wait_seconds.Observe(90);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("tandem_build_info{version="));
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"headers\"} 2"));
  EXPECT_THAT(text, HasSubstr("tandem_train_loss{job_name=\"headers\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("tandem_train_tokens_total{job_name=\"headers\"} 2000"));
  EXPECT_THAT(text, HasSubstr("tandem_train_step_seconds_bucket{job_name=\"headers\",le=\"+Inf\"} 2"));
  EXPECT_THAT(text, HasSubstr("tandem_controller_store_commit_seconds_bucket{le=\"0.0003\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("grpc_server_handled_total{grpc_service=\"tandem.v1.Jobs\",grpc_method=\"Submit\","
                        "grpc_code=\"OK\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("grpc_server_handling_seconds_bucket{grpc_service=\"tandem.v1.Jobs\",grpc_method="
                        "\"Submit\",le=\"0.003\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_controller_queue_wait_seconds_bucket{le=\"60\"} 0"));
  EXPECT_THAT(text, HasSubstr("tandem_controller_queue_wait_seconds_bucket{le=\"300\"} 1"));

  if (std::system("command -v promtool > /dev/null 2>&1") == 0) {
    platform::TemporaryFolder folder;
    std::ofstream(folder.path() + "/scrape") << text;
    EXPECT_EQ(std::system(("promtool check metrics < " + folder.path() + "/scrape").c_str()), 0);
  }

  metrics_->JobEnded(JobOf("id-1", "headers"));
  clock_.Advance(absl::Minutes(4));
  EXPECT_THAT(Text(), HasSubstr("job_name=\"headers\""));
  clock_.Advance(absl::Minutes(2));
  EXPECT_THAT(Text(), Not(HasSubstr("headers")));
}

TEST_F(MetricSeriesTest, LateReportKeepsNoSeriesAlive) {
  metrics_->Report("id-1", "headers", ReportOf(1));
  metrics_->JobEnded(JobOf("id-1", "headers"));
  metrics_->Report("id-1", "headers", ReportOf(2));
  EXPECT_THAT(Text(), HasSubstr("tandem_train_tokens_total{job_name=\"headers\"} 2000"));
  clock_.Advance(absl::Minutes(6));
  EXPECT_THAT(Text(), Not(HasSubstr("headers")));
}

TEST_F(MetricSeriesTest, ReusedNameBeginsNewSeries) {
  metrics_->Report("id-1", "headers", ReportOf(7));
  metrics_->JobEnded(JobOf("id-1", "headers"));
  metrics_->Report("id-2", "headers", ReportOf(1));
  EXPECT_THAT(Text(), HasSubstr("tandem_train_step{job_name=\"headers\"} 1"));
  clock_.Advance(absl::Minutes(6));
  EXPECT_THAT(Text(), HasSubstr("tandem_train_tokens_total{job_name=\"headers\"} 1000"));
}

TEST_F(MetricSeriesTest, OfEndedJobsTheNewestFiftyStay) {
  metrics_->Report("id-live", "live", ReportOf(1));
  for (int i = 0; i < 60; ++i) {
    const std::string name = absl::StrCat("job-", i);
    metrics_->Report("id-" + name, name, ReportOf(1));
    metrics_->JobEnded(JobOf("id-" + name, name));
    clock_.Advance(absl::Milliseconds(1));
  }
  const std::string text = Text();
  EXPECT_THAT(text, Not(HasSubstr("job_name=\"job-9\"")));
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"job-10\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"live\"} 1"));
}

TEST_F(MetricSeriesTest, CheckpointSeriesLastFiveMinutesLonger) {
  State state;
  v1::Job job;
  job.set_id("id");
  job.set_name("headers");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.add_attempts();
  state.jobs.Add({.job = job});
  const auto value = [&](const std::string& name) {
    for (const prometheus::MetricFamily& family : metrics_->Collect()) {
      if (family.name == name && !family.metric.empty()) {
        EXPECT_EQ(family.metric[0].label[0].value, "headers");
        return family.type == prometheus::MetricType::Counter ? family.metric[0].counter.value
                                                              : family.metric[0].gauge.value;
      }
    }
    return -1.0;
  };
  metrics_->Look(state);
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), -1) << "nothing was saved, and nothing failed";
  v1::CheckpointRecord& record = *job.mutable_checkpoints();
  record.set_saved(3);
  record.set_failed(12);
  record.set_failed_in_a_row(2);
  record.set_bytes(1000);
  record.set_seconds(1.5);
  record.set_last_step(30);
  record.mutable_last_saved()->set_seconds(1'700'000'000);
  state.jobs.Change("id", [&](JobEntry& entry) { entry.job = job; });
  metrics_->Look(state);
  EXPECT_EQ(value("tandem_checkpoint_saves_total"), 3);
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), 12);
  EXPECT_EQ(value("tandem_checkpoint_failures_in_a_row"), 2);
  EXPECT_EQ(value("tandem_checkpoint_bytes_total"), 1000);
  EXPECT_EQ(value("tandem_checkpoint_seconds_total"), 1.5);
  EXPECT_EQ(value("tandem_checkpoint_last_step"), 30);
  EXPECT_EQ(value("tandem_checkpoint_last_success_timestamp_seconds"), 1'700'000'000);
  record.set_failed(13);  // with its last step
  metrics_->JobEnded(job);
  state.jobs = {};
  metrics_->Look(state);
  clock_.Advance(absl::Minutes(4));
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), 13);
  clock_.Advance(absl::Minutes(2));
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), -1);
}

}  // namespace
}  // namespace tandem::controller
