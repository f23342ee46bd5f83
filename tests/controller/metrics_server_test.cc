#include "controller/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "controller/metrics.h"
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
  std::string Ask(const std::string& request) {
    HttpConnection connection(server_->address());
    connection.Send(request);
    return connection.Read();
  }

  platform::FakeClock clock_;
  std::shared_ptr<Metrics> metrics_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, IdleConnectionsHoldNoScrapeUp) {
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 400; ++i) {  // more than are kept
    idle.push_back(std::make_unique<HttpConnection>(server_->address()));
    if (i % 2 == 0) {
      idle.back()->Send("GET /metr");
    }
  }
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Scrape(server_->address()), HasSubstr("tandem_build_info"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(MetricsServerTest, AHalfSentRequestIsClosedAfterTwoSeconds) {
  HttpConnection slow(server_->address());
  slow.Send("GET /metrics HTTP/1.1\r\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(slow.Read(), "");
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_GT(waited, std::chrono::milliseconds(1500));
  EXPECT_LT(waited, std::chrono::seconds(4));
}

TEST_F(MetricsServerTest, ARequestInPiecesIsAnswered) {
  HttpConnection connection(server_->address());
  connection.Send("GET /metrics HTT");
  connection.Send("P/1.1\r\nHost: here\r\n");
  connection.Send("\r\n");
  EXPECT_THAT(connection.Read(),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
                    HasSubstr("tandem_build_info")));
}

TEST_F(MetricsServerTest, WhatIsNotServedIsRefusedWithAReason) {
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("the metrics are at /metrics")));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("PRI * HTTP/2.0\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nX: " + std::string(8192, 'x')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(MetricsServerTest, ATakenPortIsOneClearLine) {
  const auto second = MetricsServer::Start(server_->address(), metrics_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(server_->address()), HasSubstr("--metrics-listen"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace tandem::controller
