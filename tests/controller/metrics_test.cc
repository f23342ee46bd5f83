// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/time.h"
#include "tests/controller/http_client.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/job_client.h"
#include "tests/controller/metrics_handler.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::StepReport ReportOf(int64_t step) {
  v1::StepReport out;
  out.set_step(step);
  out.set_attempt(1);
  out.set_loss(2.5);
  out.set_tokens(1000);
  out.set_seconds(0.02);
  return out;
}

v1::Job JobOf(const std::string& id, const std::string& name) {
  v1::Job job;
  job.set_id(id);
  job.set_name(name);
  job.add_attempts();
  job.mutable_checkpoints()->set_saved(1);
  return job;
}

std::string TextOf(const Metrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

// Of the sample without labels.
double ValueOf(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

int CountLines(const std::string& text, const std::string& beginning) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    count += line.starts_with(beginning) ? 1 : 0;
  }
  return count;
}

// Both ranks of the driver's job report that they are ready, and what they send in a step, by purpose.
void SayReady(Driver& driver, Metrics& metrics, const std::map<std::string, double>& sent_bytes) {
  for (const v1::RankSlot& slot : Current(driver.Job()).slots()) {
    v1::AttemptStatus status = StatusOf("id-job", driver.Job().attempt());
    v1::Ready& ready = *AddRank(status, slot.rank(), v1::RANK_PHASE_READY).mutable_ready();
    ready.mutable_sent_bytes()->insert(sent_bytes.begin(), sent_bytes.end());
    driver.Say(slot.worker(), status);
    metrics.Reported(driver.state, CurrentAttempt(driver.Job()));
  }
}

TEST(MetricsTest, OnlyJobsWithSparseLayersHaveSeriesOfExpertsAsManyAsTheirReportsHaveScalars) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.Report("id-1", "dense", ReportOf(1));
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
  metrics.Report("id-2", "sparse", report);
  const std::string text = TextOf(metrics);
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

TEST(MetricsTest, SpikesAreCounted) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  for (int64_t step = 1; step <= 5; ++step) {
    v1::StepReport report = ReportOf(step);
    if (step % 2 == 0) {
      (*report.mutable_scalars())["spike_limit"] = 3.5;
    }
    metrics.Report("id-job", "job", report);
  }
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_spikes_total{job_name=\"job\"} 2\n"));
}

TEST(MetricsTest, SamplesAreSequencesOfTheJobsLength) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  driver.state.jobs.Change("id-job", [](JobEntry& entry) {
    entry.job.mutable_resolved()->mutable_training()->set_sequence_length(100);
  });
  metrics.Report("id-job", "job", ReportOf(1));
  metrics.Report("id-job", "job", ReportOf(2));
  metrics.Look(driver.state);
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_samples_total{job_name=\"job\"} 20\n"));
}

// What ranks on two devices need, when both have said so.
TEST(MetricsTest, WhatTheRanksOfAJobSendAndHoldIsThatOfAllOfThem) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  Driver driver;
  driver.Run(v1::JOB_STATE_STARTING);
  for (int64_t rank : {0, 1}) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::Ready& ready = *AddRank(status, static_cast<int>(rank), v1::RANK_PHASE_READY).mutable_ready();
    ready.set_arena_bytes(1000 + rank);
    ready.set_device_used_bytes(3000 - 500 * rank);
    ready.set_device_total_bytes(8000 + 1000 * rank);
    (*ready.mutable_sent_bytes())["gather"] = 100;
    (*ready.mutable_sent_bytes())["reduce"] = 10 + static_cast<double>(rank);
    metrics.Report("id-job", "job", ReportOf(rank));  // of step 0: the validation before the first
    EXPECT_THAT(TextOf(metrics), Not(HasSubstr("tandem_device_memory_bytes{")));
    driver.Say(rank == 0 ? "a" : "b", status);
    metrics.Reported(driver.state, {"id-job", 1});
  }
  metrics.Report("id-job", "job", ReportOf(2));
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"arena\"} 1001\n"));
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"used\"} 3000\n"));
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"total\"} 8000\n"));
  EXPECT_THAT(text, HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"gather\"} 400\n"))
      << "two steps";
  EXPECT_THAT(text, HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"reduce\"} 42\n"));
}

TEST(MetricsTest, AShortJobsReportsCountAfterItsEnd) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  Driver driver;
  driver.Run(v1::JOB_STATE_STARTING);
  driver.state.jobs.Change("id-job", [](JobEntry& entry) {
    entry.job.mutable_resolved()->mutable_training()->set_sequence_length(100);
  });
  SayReady(driver, metrics, {{"gather", 100}});
  metrics.JobEnded(driver.Job());
  driver.state.jobs = {};
  metrics.Look(driver.state);
  metrics.Report("id-job", "job", ReportOf(1));
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"gather\"} 200\n"));
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_samples_total{job_name=\"job\"} 10\n"));
  clock.Advance(absl::Minutes(6));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("job_name"))) << "they end with the others of ended jobs";
  metrics.Report("id-job", "job", ReportOf(2), clock.Now() - absl::Minutes(6));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("job_name")));
}

TEST(MetricsTest, AnEndedJobsLateReportLeavesItsNameToTheNext) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.JobEnded(JobOf("id-1", "headers"));
  clock.Advance(absl::Seconds(1));
  Driver driver;
  driver.Connect("a", 1);
  driver.Feed(SubmitOf("headers", 1));
  metrics.Look(driver.state);
  metrics.Report("id-headers", "headers", ReportOf(7));
  metrics.Report("id-1", "headers", ReportOf(9));  // its stream has not heard of the end
  metrics.Report("id-1", "headers", ReportOf(9), clock.Now());
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_step{job_name=\"headers\"} 7\n"));
}

TEST(MetricsTest, ARestartedControllerKeepsALiveJobFromLateReports) {
  platform::FakeClock clock;
  Metrics metrics(clock);  // which has not looked yet
  metrics.Report("id-2", "headers", ReportOf(7));
  metrics.Report("id-1", "headers", ReportOf(9), clock.Now());
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_step{job_name=\"headers\"} 7\n"));
}

TEST(MetricsTest, SeriesOfAnUnknownEndLeaveToo) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.Report("id-1", "headers",
                 ReportOf(1));  // a store that stands still does not tell that it has ended
  metrics.Look(State());
  EXPECT_THAT(TextOf(metrics), HasSubstr("headers"));
  clock.Advance(absl::Minutes(6));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("headers")));
}

TEST(MetricsTest, EachAttemptCountsWhatItsOwnRanksSend) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  Driver driver;
  driver.Run(v1::JOB_STATE_STARTING);
  SayReady(driver, metrics, {{"gather", 100}});
  metrics.Report("id-job", "job", ReportOf(1));
  driver.state.jobs.Change("id-job", [](JobEntry& entry) {
    *entry.job.add_attempts() = Current(entry.job);
    entry.job.set_attempt(2);
  });
  SayReady(driver, metrics, {{"gather", 7}});
  v1::StepReport second = ReportOf(1);
  second.set_attempt(2);
  metrics.Report("id-job", "job", second);
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"gather\"} 214\n"));
}

TEST(MetricsTest, NoJobHasMoreSeriesOfWhatItsRanksSendThanProgramsHavePurposes) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  Driver driver;
  driver.Run(v1::JOB_STATE_STARTING);
  std::map<std::string, double> sent_bytes;
  for (int i = 0; i < 1000; ++i) {
    sent_bytes[absl::StrCat("purpose-", i)] = i % 2 == 0 ? 1 : -1;
  }
  SayReady(driver, metrics, sent_bytes);
  metrics.Report("id-job", "job", ReportOf(1));
  EXPECT_EQ(CountLines(TextOf(metrics), "tandem_comm_bytes_total{"), 16);
}

TEST(MetricsTest, AScrapeShowsTrainingUntilFiveMinutesAfterTheEnd) {
  platform::FakeClock clock;
  const auto metrics = std::make_shared<Metrics>(clock);
  metrics->Report("id-1", "headers", ReportOf(1));
  metrics->Report("id-1", "headers", ReportOf(2));
  metrics->Report("id-1", "headers", ReportOf(2));  // sent twice
  metrics->CommitSeconds(0.0002);
  metrics->RpcStarted("/tandem.v1.Jobs/Submit");
  metrics->RpcHandled("/tandem.v1.Jobs/Submit", "OK", absl::Milliseconds(2));
  metrics->JobPlaced(absl::Seconds(90));
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start("127.0.0.1:0", MetricsHandler(metrics));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape((*server)->address());
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

  metrics->JobEnded(JobOf("id-1", "headers"));
  clock.Advance(absl::Minutes(4));
  EXPECT_THAT(Scrape((*server)->address()), HasSubstr("job_name=\"headers\""));
  clock.Advance(absl::Minutes(2));
  EXPECT_THAT(Scrape((*server)->address()), Not(HasSubstr("headers")));
}

TEST(MetricsTest, AWorkersSilenceIsCountedFromItsLastWordWhetherItIsConnectedOrAway) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  const absl::Time start = clock.Now();
  metrics.SetLastSeen([&](const std::string&) { return start + absl::Seconds(7); });
  State state;
  state.workers["here"] = {.connected = true, .since = start};
  state.workers["away"] = {.connected = false, .since = start + absl::Seconds(3)};
  clock.Advance(absl::Seconds(10));
  metrics.Look(state);
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"here\"} 3"));
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"away\"} 7"));
}

TEST(MetricsTest, AWorkerThatVanishedIsAwayAndOneThatHasLeftAsItWasAskedToIsNotCounted) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.SetLastSeen([&](const std::string&) { return clock.Now(); });
  Driver driver;
  for (const char* const worker : {"left", "vanished"}) {
    driver.Connect(worker, 1);
  }
  driver.Feed(WorkerDraining{.worker = "left"});
  for (const char* const worker : {"left", "vanished"}) {
    driver.Disconnect(worker);
  }
  Prune(driver.state);
  metrics.Look(driver.state);
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("tandem_controller_workers{state=\"away\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"vanished\"}"));
  EXPECT_THAT(text, Not(HasSubstr("{worker=\"left\"}")));
}

TEST(MetricsTest, AReportThatComesAfterTheEndKeepsNothingAlive) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.Report("id-1", "headers", ReportOf(1));
  metrics.JobEnded(JobOf("id-1", "headers"));
  metrics.Report("id-1", "headers", ReportOf(2));
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_tokens_total{job_name=\"headers\"} 2000"));
  clock.Advance(absl::Minutes(6));
  EXPECT_THAT(TextOf(metrics), Not(HasSubstr("headers")));
}

TEST(MetricsTest, AJobThatTakesTheNameOfAnEndedOneBeginsAnew) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.Report("id-1", "headers", ReportOf(7));
  metrics.JobEnded(JobOf("id-1", "headers"));
  metrics.Report("id-2", "headers", ReportOf(1));
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_step{job_name=\"headers\"} 1"));
  clock.Advance(absl::Minutes(6));
  EXPECT_THAT(TextOf(metrics), HasSubstr("tandem_train_tokens_total{job_name=\"headers\"} 1000"));
}

TEST(MetricsTest, OfEndedJobsTheNewestFiftyStay) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  metrics.Report("id-live", "live", ReportOf(1));
  for (int i = 0; i < 60; ++i) {
    const std::string name = absl::StrCat("job-", i);
    metrics.Report("id-" + name, name, ReportOf(1));
    metrics.JobEnded(JobOf("id-" + name, name));
    clock.Advance(absl::Milliseconds(1));
  }
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, Not(HasSubstr("job_name=\"job-9\"")));
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"job-10\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"live\"} 1"));
}

TEST(MetricsTest, AScrapeShowsWhatTheProcessUses) {
  platform::FakeClock clock;
  const Metrics metrics(clock);
  const std::string before = TextOf(metrics);
  std::vector<char> memory(64 << 20, 'x');
  volatile double sum = 0;
  const std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 5) {
    sum = sum + memory[static_cast<size_t>(sum) % memory.size()];
  }
  const std::string after = TextOf(metrics);
  EXPECT_GT(ValueOf(after, "process_resident_memory_bytes"),
            ValueOf(before, "process_resident_memory_bytes") + (60 << 20));
  EXPECT_GT(ValueOf(after, "process_virtual_memory_bytes"), ValueOf(after, "process_resident_memory_bytes"));
  EXPECT_GE(ValueOf(after, "process_cpu_seconds_total"), ValueOf(before, "process_cpu_seconds_total") + 0.15);
  JobClient::Until([&] {  // connections of the tests before may still be closed meanwhile
    const double open = ValueOf(TextOf(metrics), "process_open_fds");
    const std::ifstream descriptor("/dev/null");
    return ValueOf(TextOf(metrics), "process_open_fds") == open + 1;
  });
  EXPECT_GE(ValueOf(after, "process_max_fds"), ValueOf(after, "process_open_fds"));
  EXPECT_GE(ValueOf(after, "process_threads"), 1);
  const double age =
      absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) - ValueOf(after, "process_start_time_seconds");
  EXPECT_GE(age, -2);
  EXPECT_LT(age, 600) << "in seconds since 1970, by the machine's clock";
}

TEST(MetricsTest, AScrapeShowsTheAgeOfTheLastProgressAndTheRankThatIsBehind) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  for (const auto& [worker, rank] : {std::pair("a", 0), std::pair("b", 1)}) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::RankStatus& said = AddRank(status, rank, v1::RANK_PHASE_STEPPING);
    said.set_process_stopped(rank == 1);
    *said.mutable_since_progress() = proto::ToProto(absl::Seconds(20));
    driver.Say(worker, status);
  }
  platform::FakeClock clock(driver.now);
  const auto metrics = std::make_shared<Metrics>(clock);
  metrics->Look(driver.state);
  clock.Advance(absl::Milliseconds(500));
  const auto server = HttpServer::Start("127.0.0.1:0", MetricsHandler(metrics));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape((*server)->address());
  EXPECT_THAT(text, HasSubstr("tandem_train_progress_age_seconds{job_name=\"job\"} 20.5"));
  EXPECT_THAT(text, HasSubstr("tandem_train_rank_behind{job_name=\"job\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_train_stalled{job_name=\"job\"} 1"));
}

TEST(MetricsTest, AScrapeShowsCheckpointsUntilFiveMinutesAfterTheEnd) {
  platform::FakeClock clock;
  Metrics metrics(clock);
  State state;
  v1::Job job;
  job.set_id("id");
  job.set_name("headers");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.add_attempts();
  state.jobs.Add({.job = job});
  const auto value = [&](const std::string& name) {
    for (const prometheus::MetricFamily& family : metrics.Collect()) {
      if (family.name == name && !family.metric.empty()) {
        EXPECT_EQ(family.metric[0].label[0].value, "headers");
        return family.type == prometheus::MetricType::Counter ? family.metric[0].counter.value
                                                              : family.metric[0].gauge.value;
      }
    }
    return -1.0;
  };
  metrics.Look(state);
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
  metrics.Look(state);
  EXPECT_EQ(value("tandem_checkpoint_saves_total"), 3);
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), 12);
  EXPECT_EQ(value("tandem_checkpoint_failures_in_a_row"), 2);
  EXPECT_EQ(value("tandem_checkpoint_bytes_total"), 1000);
  EXPECT_EQ(value("tandem_checkpoint_seconds_total"), 1.5);
  EXPECT_EQ(value("tandem_checkpoint_last_step"), 30);
  EXPECT_EQ(value("tandem_checkpoint_last_success_timestamp_seconds"), 1'700'000'000);
  record.set_failed(13);  // with its last step
  metrics.JobEnded(job);
  state.jobs = {};
  metrics.Look(state);
  clock.Advance(absl::Minutes(4));
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), 13);
  clock.Advance(absl::Minutes(2));
  EXPECT_EQ(value("tandem_checkpoint_failures_total"), -1);
}

TEST(MetricsTest, TheTimeOfAJobIsAccountedForWhileItRunsAndAfter) {
  platform::FakeClock clock(kStart);
  Metrics metrics(clock);
  metrics.SetTotals([](const std::string& job) {
    EXPECT_EQ(job, "id-job");
    return StepTotals{.steps = 4, .seconds = 8};
  });
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  clock.Advance(absl::Seconds(20));
  metrics.Look(driver.state);
  const auto seconds = [&](const std::string& part) {
    for (const prometheus::MetricFamily& family : metrics.Collect()) {
      for (const prometheus::ClientMetric& metric : family.metric) {
        if (family.name == "tandem_train_time_seconds" && metric.label[1].value == part) {
          return metric.gauge.value;
        }
      }
    }
    return -1.0;
  };
  EXPECT_EQ(seconds("stepping"), 8);
  EXPECT_EQ(seconds("other"), 12);
  EXPECT_EQ(seconds("waiting"), 0);
}

// The look into the history may wait for a disk, and every call and every commit is counted.
TEST(MetricsTest, WhileAScrapeLooksIntoTheHistoryCallsAndCommitsAreCounted) {
  platform::FakeClock clock(kStart);
  Metrics metrics(clock);
  metrics.SetTotals([&](const std::string&) {
    metrics.RpcStarted("/tandem.v1.Jobs/Submit");
    metrics.CommitSeconds(0.001);
    return StepTotals{};
  });
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  metrics.Look(driver.state);
  TextOf(metrics);
  EXPECT_THAT(TextOf(metrics), HasSubstr("grpc_method=\"Submit\"} 1\n"));
}

}  // namespace
}  // namespace tandem::controller
