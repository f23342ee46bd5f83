// SPDX-License-Identifier: Apache-2.0
#include "controller/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "controller/metrics/metrics.h"
#include "platform/regular_file.h"
#include "tests/controller/http_client.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers /metrics, as the controller does, and nothing else.
HttpServer::Handler MetricsHandler(std::shared_ptr<const Metrics> metrics) {
  return [metrics = std::move(metrics)](const HttpRequest& request) {
    return request.path == "/metrics" ? HttpAnswer{.type = kMetricsType, .body = MetricsText(*metrics)}
                                      : HttpAnswer{.status = 404, .body = "nothing\n"};
  };
}

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() : metrics_(std::make_shared<Metrics>(clock_)) {
    auto server = HttpServer::Start("127.0.0.1:0", MetricsHandler(metrics_));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  platform::FakeClock clock_;
  std::shared_ptr<Metrics> metrics_;
  std::unique_ptr<HttpServer> server_;
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

TEST_F(HttpServerTest, IdleConnectionsHoldNoScrapeUp) {
  for (const int num_idle : {4, 50, 400}) {
    EXPECT_LT(SlowestScrape(server_->address(), num_idle), 10) << num_idle;
  }
}

TEST_F(HttpServerTest, AHalfSentRequestIsClosedInTime) {
  HttpConnection slow(server_->address());
  slow.Send("GET /metrics HTTP/1.1\r\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(slow.Read(), Not(HasSubstr("200 OK")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(HttpServerTest, OtherPathsAreNotFound) {
  HttpConnection connection(server_->address());
  connection.Send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_THAT(connection.Read(), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, OnlyGetAndPostAreAnswered) {
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "PATCH"}) {
    HttpConnection connection(server_->address());
    connection.Send(std::string(method) + " /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n");
    EXPECT_THAT(connection.Read(), AllOf(StartsWith("HTTP/1.1 405 "), Not(HasSubstr("tandem_build_info"))))
        << method;
  }
}

TEST_F(HttpServerTest, ARequestWithABodyIsRefused) {
  for (const char* body :
       {"Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}) {
    HttpConnection connection(server_->address());
    connection.Send(std::string("POST /metrics HTTP/1.1\r\nHost: here\r\n") + body);
    EXPECT_THAT(connection.Read(), StartsWith("HTTP/1.1 413 ")) << body;
  }
}

TEST_F(HttpServerTest, ItEndsAtOnce) {
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {  // a busy machine joins its threads late
    auto server = HttpServer::Start("127.0.0.1:0", MetricsHandler(metrics_));
    ASSERT_TRUE(server.ok()) << server.status();
    const auto start = std::chrono::steady_clock::now();
    server->reset();
    fastest = std::min(fastest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(fastest, std::chrono::seconds(1));
}

// An IPv6 socket can be had here. The server is not asked: it would have its own mistakes skipped.
bool HasIpv6() {
  const platform::Descriptor probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in6 here{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  return bind(probe.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)) == 0;
}

TEST_F(HttpServerTest, WithoutAHostItListensOnEveryAddress) {
  const auto everywhere = HttpServer::Start(":0", MetricsHandler(metrics_));
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_THAT(Scrape((*everywhere)->address()), HasSubstr("tandem_build_info"));
  if (HasIpv6()) {
    EXPECT_THAT(Scrape("[::1]" + (*everywhere)->address()), HasSubstr("tandem_build_info"));
  }
}

TEST_F(HttpServerTest, AnAddressOfIpv6IsServed) {
  if (!HasIpv6()) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  for (const char* const address : {"[::1]:0", "[::]:0"}) {
    std::string client;
    const auto server = HttpServer::Start(address, [&client](const HttpRequest& request) {
      client = request.client_ip;
      return HttpAnswer{.body = "served"};
    });
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(Scrape((*server)->address()), "served");
    EXPECT_EQ(client, "::1");
  }
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start("::1:0", MetricsHandler(metrics_)).status()));
}

// One byte at a time keeps a connection busy for ever.
TEST_F(HttpServerTest, ARequestThatDripsGivesWayToOthers) {
  HttpConnection slow(server_->address());
  slow.Send("GET /metrics HTTP/1.1\r\n");
  const auto start = std::chrono::steady_clock::now();
  while (slow.IsOpen() && std::chrono::steady_clock::now() - start < std::chrono::seconds(60)) {
    slow.Send("a");
    Scrape(server_->address());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(HttpServerTest, ATakenPortIsOneClearLine) {
  const auto second = HttpServer::Start(server_->address(), MetricsHandler(metrics_));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(server_->address()), HasSubstr("--metrics-listen"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace tandem::controller
