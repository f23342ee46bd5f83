// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "controller/metrics/metrics.h"
#include "platform/fake_clock.h"
#include "tests/controller/http_client.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() : metrics_(std::make_shared<Metrics>(clock_)) {
    auto server = MetricsServer::Start("127.0.0.1:0", metrics_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  platform::FakeClock clock_;
  std::shared_ptr<Metrics> metrics_;
  std::unique_ptr<MetricsServer> server_;
};

// The slowest of ten scrapes while so many connections say nothing, or half of a request.
double SlowestScrape(const std::string& address, int num_idle) {
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < num_idle; ++i) {
    idle.push_back(std::make_unique<HttpConnection>(address));
    if (i % 2 == 0) {
      idle.back()->Send("GET /metr");
    }
  }
  double slowest = 0;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(Scrape(address), HasSubstr("tandem_build_info"));
    slowest =
        std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return slowest;
}

TEST_F(MetricsServerTest, IdleConnectionsHoldNoScrapeUp) {
  for (const int num_idle : {4, 50, 400}) {
    EXPECT_LT(SlowestScrape(server_->address(), num_idle), 1) << num_idle;
  }
}

TEST_F(MetricsServerTest, AHalfSentRequestIsClosedInTime) {
  HttpConnection slow(server_->address());
  slow.Send("GET /metrics HTTP/1.1\r\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(slow.Read(), Not(HasSubstr("200 OK")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(MetricsServerTest, ARequestInPiecesIsAnswered) {
  HttpConnection connection(server_->address());
  connection.Send("GET /metrics HTT");
  connection.Send("P/1.1\r\nHost: here\r\n");
  connection.Send("\r\n");
  EXPECT_THAT(connection.Read(), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("tandem_build_info")));
}

TEST_F(MetricsServerTest, OtherPathsAreNotFound) {
  HttpConnection connection(server_->address());
  connection.Send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_THAT(connection.Read(), StartsWith("HTTP/1.1 404 "));
}

TEST_F(MetricsServerTest, ItEndsAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(MetricsServerTest, WithoutAHostItListensOnEveryAddress) {
  const auto everywhere = MetricsServer::Start(":0", metrics_);
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_THAT(Scrape((*everywhere)->address()), HasSubstr("tandem_build_info"));
}

TEST_F(MetricsServerTest, ATakenPortIsOneClearLine) {
  const auto second = MetricsServer::Start(server_->address(), metrics_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(server_->address()), HasSubstr("--metrics-listen"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace tandem::controller
