// SPDX-License-Identifier: Apache-2.0
// What the values of a scrape are.
#include "controller/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "proto/time.h"
#include "tests/controller/job_client.h"
#include "tests/controller/metrics_fixture.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of the sample without labels.
double ValueOf(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

TEST_F(MetricsTest, SpikesAreCounted) {
  for (int64_t step = 1; step <= 5; ++step) {
    v1::StepReport report = ReportOf(step);
    if (step % 2 == 0) {
      (*report.mutable_scalars())["spike_limit"] = 3.5;
    }
    metrics_->Report("id-job", "job", report);
  }
  EXPECT_THAT(Text(), HasSubstr("tandem_train_spikes_total{job_name=\"job\"} 2\n"));
}

TEST_F(MetricsTest, SamplesAreSequencesOfTheJobsLength) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  driver_.state.jobs.Change("id-job", [](JobEntry& entry) {
    entry.job.mutable_resolved()->mutable_training()->set_sequence_length(100);
  });
  metrics_->Report("id-job", "job", ReportOf(1));
  metrics_->Report("id-job", "job", ReportOf(2));
  metrics_->Look(driver_.state);
  EXPECT_THAT(Text(), HasSubstr("tandem_train_samples_total{job_name=\"job\"} 20\n"));
}

// What ranks on two devices need, when both have said so.
TEST_F(MetricsTest, JobTotalsCoverAllRanks) {
  driver_.Run(v1::JOB_STATE_STARTING);
  for (int64_t rank : {0, 1}) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::Ready& ready = *AddRank(status, static_cast<int>(rank), v1::RANK_PHASE_READY).mutable_ready();
    ready.set_arena_bytes(1000 + rank);
    ready.set_device_used_bytes(3000 - 500 * rank);
    ready.set_device_total_bytes(8000 + 1000 * rank);
    (*ready.mutable_sent_bytes())["gather"] = 100;
    (*ready.mutable_sent_bytes())["reduce"] = 10 + static_cast<double>(rank);
    metrics_->Report("id-job", "job", ReportOf(rank));  // of step 0: the validation before the first
    EXPECT_THAT(Text(), Not(HasSubstr("tandem_device_memory_bytes{")));
    driver_.Say(rank == 0 ? "a" : "b", status);
    metrics_->Reported(driver_.state, {"id-job", 1});
  }
  metrics_->Report("id-job", "job", ReportOf(2));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"arena\"} 1001\n"));
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"used\"} 3000\n"));
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"job\",kind=\"total\"} 8000\n"));
  EXPECT_THAT(text, HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"gather\"} 400\n"))
      << "two steps";
  EXPECT_THAT(text, HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"reduce\"} 42\n"));
}

TEST_F(MetricsTest, EachAttemptCountsWhatItsOwnRanksSend) {
  driver_.Run(v1::JOB_STATE_STARTING);
  SayReady({{"gather", 100}});
  metrics_->Report("id-job", "job", ReportOf(1));
  driver_.state.jobs.Change("id-job", [](JobEntry& entry) {
    *entry.job.add_attempts() = Current(entry.job);
    entry.job.set_attempt(2);
  });
  SayReady({{"gather", 7}});
  v1::StepReport second = ReportOf(1);
  second.set_attempt(2);
  metrics_->Report("id-job", "job", second);
  EXPECT_THAT(Text(), HasSubstr("tandem_comm_bytes_total{job_name=\"job\",op=\"gather\"} 214\n"));
}

TEST_F(MetricsTest, SilenceCountsFromTheLastMessage) {
  const absl::Time start = clock_.Now();
  metrics_->SetLastSeen([&](const std::string&) { return start + absl::Seconds(7); });
  State state;
  state.workers["here"] = {.connected = true, .since = start};
  state.workers["away"] = {.connected = false, .since = start + absl::Seconds(3)};
  clock_.Advance(absl::Seconds(10));
  metrics_->Look(state);
  EXPECT_THAT(Text(), HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"here\"} 3"));
  EXPECT_THAT(Text(), HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"away\"} 7"));
}

TEST_F(MetricsTest, OnlyVanishedWorkersCountAsAway) {
  metrics_->SetLastSeen([&](const std::string&) { return clock_.Now(); });
  for (const char* const worker : {"left", "vanished"}) {
    driver_.Connect(worker, 1);
  }
  driver_.Feed(WorkerDraining{.worker = "left"});
  for (const char* const worker : {"left", "vanished"}) {
    driver_.Disconnect(worker);
  }
  Prune(driver_.state);
  metrics_->Look(driver_.state);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("tandem_controller_workers{state=\"away\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tandem_worker_heartbeat_age_seconds{worker=\"vanished\"}"));
  EXPECT_THAT(text, Not(HasSubstr("{worker=\"left\"}")));
}

TEST_F(MetricsTest, AScrapeShowsWhatTheProcessUses) {
  const std::string before = Text();
  std::vector<char> memory(64 << 20, 'x');
  volatile double sum = 0;
  const std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 5) {
    sum = sum + memory[static_cast<size_t>(sum) % memory.size()];
  }
  const std::string after = Text();
  EXPECT_GT(ValueOf(after, "process_resident_memory_bytes"),
            ValueOf(before, "process_resident_memory_bytes") + (60 << 20));
  EXPECT_GT(ValueOf(after, "process_virtual_memory_bytes"), ValueOf(after, "process_resident_memory_bytes"));
  EXPECT_GE(ValueOf(after, "process_cpu_seconds_total"), ValueOf(before, "process_cpu_seconds_total") + 0.15);
  JobClient::Until([&] {  // connections of the tests before may still be closed meanwhile
    const double open = ValueOf(Text(), "process_open_fds");
    const std::ifstream descriptor("/dev/null");
    return ValueOf(Text(), "process_open_fds") == open + 1;
  });
  EXPECT_GE(ValueOf(after, "process_max_fds"), ValueOf(after, "process_open_fds"));
  EXPECT_GE(ValueOf(after, "process_threads"), 1);
  const double age =
      absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) - ValueOf(after, "process_start_time_seconds");
  EXPECT_GE(age, -2);
  EXPECT_LT(age, 600) << "in seconds since 1970, by the machine's clock";
}

TEST_F(MetricsTest, ScrapeShowsProgressAgeAndSlowestRank) {
  driver_.Run(v1::JOB_STATE_RUNNING);
  for (const auto& [worker, rank] : {std::pair("a", 0), std::pair("b", 1)}) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::RankStatus& said = AddRank(status, rank, v1::RANK_PHASE_STEPPING);
    said.set_process_stopped(rank == 1);
    *said.mutable_since_progress() = proto::ToProto(absl::Seconds(20));
    driver_.Say(worker, status);
  }
  clock_.Advance(driver_.now - clock_.Now());
  metrics_->Look(driver_.state);
  clock_.Advance(absl::Milliseconds(500));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("tandem_train_progress_age_seconds{job_name=\"job\"} 20.5"));
  EXPECT_THAT(text, HasSubstr("tandem_train_rank_behind{job_name=\"job\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_train_stalled{job_name=\"job\"} 1"));
}

TEST_F(MetricsTest, AJobsTimeIsAccountedFor) {
  metrics_->SetTotals([](const std::string& job) {
    EXPECT_EQ(job, "id-job");
    return StepTotals{.steps = 4, .seconds = 8};
  });
  driver_.Run(v1::JOB_STATE_RUNNING);
  clock_.Advance(absl::Seconds(20));
  metrics_->Look(driver_.state);
  const auto seconds = [&](const std::string& part) {
    for (const prometheus::MetricFamily& family : metrics_->Collect()) {
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
TEST_F(MetricsTest, CallsAreCountedDuringAScrape) {
  metrics_->SetTotals([&](const std::string&) {
    metrics_->RpcStarted("/tandem.v1.Jobs/Submit");
    metrics_->commit_seconds.Observe(0.001);
    return StepTotals{};
  });
  driver_.Run(v1::JOB_STATE_RUNNING);
  metrics_->Look(driver_.state);
  Text();
  EXPECT_THAT(Text(), HasSubstr("grpc_method=\"Submit\"} 1\n"));
}

}  // namespace
}  // namespace tandem::controller
