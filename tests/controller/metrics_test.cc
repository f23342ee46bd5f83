#include "controller/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "platform/fake_clock.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/temp_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The body that a GET of /metrics answers.
std::string Scrape(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

v1::StepReport ReportOf(int64_t step) {
  v1::StepReport out;
  out.set_step(step);
  out.set_attempt(1);
  out.set_loss(2.5);
  out.set_tokens(1000);
  out.set_seconds(0.02);
  return out;
}

TEST(MetricsTest, AScrapeShowsTrainingUntilFiveMinutesAfterTheEnd) {
  platform::FakeClock clock;
  const auto metrics = std::make_shared<Metrics>(clock);
  metrics->Report("headers", ReportOf(1));
  metrics->Report("headers", ReportOf(2));
  metrics->Report("headers", ReportOf(2));  // sent twice
  metrics->CommitSeconds(0.0002);
  metrics->RpcStarted("/tandem.v1.Jobs/Submit");
  metrics->RpcHandled("/tandem.v1.Jobs/Submit", "OK");
  absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape((*server)->Ports().at(0));
  EXPECT_THAT(text, HasSubstr("tandem_build_info{version="));
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"headers\"} 2"));
  EXPECT_THAT(text, HasSubstr("tandem_train_loss{job_name=\"headers\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("tandem_train_tokens_total{job_name=\"headers\"} 2000"));
  EXPECT_THAT(text, HasSubstr("tandem_train_step_seconds_bucket{job_name=\"headers\",le=\"+Inf\"} 2"));
  EXPECT_THAT(text, HasSubstr("tandem_controller_store_commit_seconds_bucket{le=\"0.0003\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("grpc_server_handled_total{grpc_service=\"tandem.v1.Jobs\",grpc_method=\"Submit\","
                        "grpc_code=\"OK\"} 1"));

  if (std::system("command -v promtool > /dev/null 2>&1") == 0) {
    TempFolder folder;
    std::ofstream(folder.path() + "/scrape") << text;
    EXPECT_EQ(std::system(("promtool check metrics < " + folder.path() + "/scrape").c_str()), 0);
  }

  metrics->JobEnded("headers");
  clock.Advance(absl::Minutes(4));
  EXPECT_THAT(Scrape((*server)->Ports().at(0)), HasSubstr("job_name=\"headers\""));
  clock.Advance(absl::Minutes(2));
  EXPECT_THAT(Scrape((*server)->Ports().at(0)), Not(HasSubstr("headers")));
}

TEST(MetricsTest, AScrapeShowsTheAgeOfTheLastProgressAndTheRankThatIsBehind) {
  Driver driver;
  driver.Run(v1::JOB_STATE_RUNNING);
  for (const auto& [worker, rank] : {std::pair("a", 0), std::pair("b", 1)}) {
    v1::AttemptStatus status = StatusOf("id-job");
    v1::RankStatus& said = AddRank(status, rank, v1::RANK_PHASE_STEPPING);
    said.set_process_stopped(rank == 1);
    *said.mutable_since_progress() = ToProto(absl::Seconds(20));
    driver.Say(worker, status);
  }
  platform::FakeClock clock(driver.now);
  const auto metrics = std::make_shared<Metrics>(clock);
  metrics->Look(driver.state);
  clock.Advance(absl::Milliseconds(500));
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string text = Scrape((*server)->Ports().at(0));
  EXPECT_THAT(text, HasSubstr("tandem_train_progress_age_seconds{job_name=\"job\"} 20.5"));
  EXPECT_THAT(text, HasSubstr("tandem_train_rank_behind{job_name=\"job\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_train_stalled{job_name=\"job\"} 1"));
}

TEST(MetricsTest, ATakenPortIsOneClearLine) {
  platform::FakeClock clock;
  const auto metrics = std::make_shared<Metrics>(clock);
  const auto first = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(first.ok());
  const std::string address = "127.0.0.1:" + std::to_string((*first)->Ports().at(0));
  const auto second = MetricsServer::Start(address, metrics);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              ::testing::AllOf(HasSubstr(address), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace tandem::controller
