// SPDX-License-Identifier: Apache-2.0
// The page's address: JSON of the users' service, health, and who is turned away.
#include "controller/http/json_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "controller/http/json_answer.h"
#include "nlohmann/json.hpp"
#include "proto/table_digest.h"
#include "tests/controller/http_client.h"
#include "tests/controller/secure_service.h"
#include "tests/controller/simulated_worker.h"
#include "tests/platform/temporary_folder.h"
#include "tests/tls/certificates.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(QueryTest, FieldsOfEveryTypeAreSet) {
  v1::ListJobsRequest request;
  ASSERT_TRUE(FillFromQuery({{"page_size", "7"},
                             {"states", "JOB_STATE_QUEUED"},
                             {"states", "JOB_STATE_RUNNING"},
                             {"brief", "true"},
                             {"page_token", "a b& \"c"}},
                            request)
                  .ok());
  EXPECT_EQ(request.page_size(), 7);
  EXPECT_THAT(request.states(), testing::ElementsAre(v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING));
  EXPECT_TRUE(request.brief());
  EXPECT_EQ(request.page_token(), "a b& \"c");
}

TEST(QueryTest, WhatDoesNotFitIsRefused) {
  const QueryFields bad = {{"page_size", "x"},     {"page_size", "99999999999"},
                           {"page_size", ""},      {"states", "QUEUED"},
                           {"states", "1"},        {"brief", "perhaps"},
                           {"brief", "1"},         {"nothing", "1"},
                           {"page_token", "a\nb"}, {"page_token", std::string(1, '\0')}};
  for (const auto& [name, value] : bad) {
    v1::ListJobsRequest request;
    EXPECT_FALSE(FillFromQuery({{name, value}}, request).ok()) << name << "=" << value;
  }
  v1::SubmitRequest request;
  EXPECT_FALSE(FillFromQuery({{"spec", "a"}}, request).ok()) << "a message";
}

class SiteTest : public ::testing::Test {
 protected:
  void Start(const std::string& listen = "127.0.0.1:0", PageMode page = PageMode::kAuto,
             const tls::TlsFiles& tls = {}) {
    server_ = StartServer(folder_, {.tls = tls, .metrics_listen = listen, .page = page});
    ASSERT_NE(server_, nullptr);
  }
  std::string Get(const std::string& path, const std::string& host = "localhost:9464") {
    HttpConnection connection(server_->metrics_address());
    connection.Send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return connection.Read();
  }
  nlohmann::json Api(const std::string& call) {
    const std::string answer = Get("/api/" + call);
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }

  platform::TemporaryFolder folder_;
  std::unique_ptr<Daemon> server_;
};

TEST_F(SiteTest, TheJsonIsThatOfTheService) {
  Start();
  SimulatedWorker worker("a", server_->addresses().at(0), {.slots = 2});
  JobClient client(server_->addresses().at(0));
  const v1::Job job = client.Ended("shown", 2);

  const nlohmann::json listed = Api("ListJobs?brief=true")["jobs"][0];
  EXPECT_EQ(listed["id"], job.id());
  EXPECT_EQ(listed["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(listed["resolved"]["training"], (nlohmann::json{{"steps", "1000"}}));
  EXPECT_FALSE(listed.contains("submitted"));
  EXPECT_TRUE(Api("GetJob?job=s%68own")["submitted"].contains("data"));
  EXPECT_EQ(Api("ListWorkers")["workers"][0]["id"], "a");
  EXPECT_EQ(Api("ListReports?job=shown")["reports"].size(), 100u) << "a page, unless asked otherwise";

  // Far fewer, with the first and the newest.
  const nlohmann::json spread = Api("ListReports?job=shown&points=10")["reports"];
  EXPECT_GE(spread.size(), 9u);
  EXPECT_LE(spread.size(), 12u);
  EXPECT_EQ(spread.front()["step"], "1");
  EXPECT_EQ(spread.back()["step"], "256");
  EXPECT_EQ(Api("ListReports?job=shown&points=100&first_step=50&last_step=60")["reports"].size(), 11u);

  const nlohmann::json events = Api("ListEvents?job=shown")["events"];
  const int64_t third = std::stoll(events[2]["seq"].get<std::string>());
  EXPECT_EQ(Api("ListEvents?job=shown&after_seq=" + std::to_string(third))["events"].size(),
            events.size() - 3);
}

TEST_F(SiteTest, OnlyThePageReadsWithoutACertificate) {
  const tls::Certificates certificates;
  Start("127.0.0.1:0", PageMode::kAuto, certificates.Files("controller", certificates.OfServer()));
  EXPECT_THAT(Get("/api/ListJobs"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
  JobClient worker(server_->addresses().at(0),
                   CredentialsOf(certificates, certificates.Of({tls::Role::kWorker, "w"})));
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  context.AddMetadata("tandem-page", "");
  context.AddMetadata("tandem-page", std::string(32, '0'));
  v1::ListJobsResponse response;
  EXPECT_EQ(worker.stub().ListJobs(&context, {}, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(SiteTest, ErrorsAreJsonWithTheStatusThatFits) {
  Start();
  EXPECT_THAT(Get("/api/GetJob?job=nobody"),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr(R"({"code":"NOT_FOUND","message":")")));
  EXPECT_THAT(Get("/api/ListJobs?page_size=many"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/api/ListReports?job=x&points=1"), StartsWith("HTTP/1.1 400 "));
  for (const char* method : {"Submit", "Watch", ""}) {
    EXPECT_THAT(Get(std::string("/api/") + method), StartsWith("HTTP/1.1 404 ")) << method;
  }
}

TEST_F(SiteTest, ThePageAsksForNothingFromElsewhere) {
  Start();
  const std::string answer = Get("/");
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("default-src 'none'"),
                            HasSubstr("<title>Tandem")));
  const std::string page = answer.substr(answer.find("\r\n\r\n"));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("http://")), Not(HasSubstr("https://")), Not(HasSubstr("src=")),
                          Not(HasSubstr("@import"))));
}

TEST_F(SiteTest, ANameThatSomebodyPointedHereIsRefused) {
  Start();
  for (const char* host :
       {"evil.example", "evil.example:9464", "127.evil.example", "localhost.evil.example", ""}) {
    EXPECT_THAT(Get("/api/ListJobs", host), StartsWith("HTTP/1.1 403 ")) << host;
  }
  for (const char* host : {"localhost", "127.0.0.1:9464", "[::1]:9464", "[::1]"}) {
    EXPECT_THAT(Get("/api/ListJobs", host), StartsWith("HTTP/1.1 200 ")) << host;
  }
  EXPECT_THAT(Get("/metrics", "metrics.example"), StartsWith("HTTP/1.1 200 "));
}

// A controller whose calls are answered and which decides nothing.
class StuckJobs : public v1::Jobs::Service {
 public:
  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse*) override {
    while (!context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return grpc::Status::CANCELLED;
  }
};

TEST(HealthTest, StuckControllerIsUnhealthyInTime) {
  StuckJobs jobs;
  grpc::ServerBuilder builder;
  builder.RegisterService(&jobs);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  JsonApi api(server->InProcessChannel({}),
              [](const std::string&, const std::string&, grpc::ClientContext&) {});
  const auto start = std::chrono::steady_clock::now();
  const HttpAnswer answer = api.Health();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("decided nothing"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "it looks for 2 s";
}

TEST_F(SiteTest, AnotherSitesPageMayNotAsk) {
  Start();
  HttpConnection connection(server_->metrics_address());
  connection.Send("GET /api/ListJobs HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n\r\n");
  EXPECT_THAT(connection.Read(), StartsWith("HTTP/1.1 403 "));
}

TEST_F(SiteTest, OversizedNormsNeedAParameterName) {
  Start();
  SimulatedWorker worker("a", server_->addresses().at(0), {});
  JobClient client(server_->addresses().at(0));
  v1::Job job;
  v1::JobSpec spec = JobClient::SpecOf("large", 1);
  spec.mutable_training()->set_steps(2000);
  ASSERT_TRUE(client.Submit(spec, "", job).ok());
  ASSERT_TRUE(client.Follow("large", job).ok());
  constexpr int kParameters = 30'000;
  v1::ReportBatch batch;
  batch.mutable_id()->set_job_id(job.id());
  batch.mutable_id()->set_attempt(1);
  for (int i = 0; i < kParameters; ++i) {
    batch.mutable_table()->add_parameters()->set_name("layers.0.experts." + std::to_string(i) + ".weight");
  }
  const std::string digest = proto::DigestOf(batch.table());
  batch.mutable_table()->set_digest(digest);
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  const auto stub = v1::Workers::NewStub(client.channel());
  const auto stream = stub->Reports(&context);
  for (int step = 1; step <= 20; ++step) {
    v1::StepReport& report = *batch.add_reports();
    report.set_step(1000 + step);
    report.set_attempt(1);
    report.mutable_norms()->set_table_digest(digest);
    for (int i = 0; i < kParameters; ++i) {
      report.mutable_norms()->add_update(0.5 * i);
    }
    report.mutable_norms()->add_experts()->set_dropped(1);
    batch.set_seq(static_cast<uint64_t>(step));
    ASSERT_TRUE(stream->Write(batch));
    batch.clear_table();
    batch.clear_reports();
  }
  v1::ReportAck ack;
  for (uint64_t seq = 0; seq < 20; seq = ack.seq()) {
    ASSERT_TRUE(stream->Read(&ack));
  }
  context.TryCancel();
  EXPECT_THAT(Get("/api/ListReports?job=large&points=64&norms=true&kind=NORM_KIND_UPDATE"),
              AllOf(StartsWith("HTTP/1.1 429 "), HasSubstr("ask for fewer")));
  const nlohmann::json fewer = Api("ListReports?job=large&points=4&norms=true&kind=NORM_KIND_UPDATE");
  EXPECT_EQ(fewer["reports"].back()["step"], "1020");
  EXPECT_EQ(fewer["table"]["parameters"].size(), kParameters);
  const nlohmann::json one = Api("ListReports?job=large&points=64&norms=true&parameter=3");
  EXPECT_EQ(one["reports"].size(), 20u);
  EXPECT_EQ(one["reports"].back()["norms"]["update"], nlohmann::json({1.0}));
  EXPECT_FALSE(one["reports"].back()["norms"].contains("experts"));
  EXPECT_EQ(one["table"]["parameters"].size(), 1u);
  EXPECT_FALSE(Api("ListReports?job=large&points=4")["reports"][0].contains("norms"));
}

TEST_F(SiteTest, ScrapeHasReportsAfterTheEnd) {
  Start();
  SimulatedWorker worker("a", server_->addresses().at(0), {});
  JobClient client(server_->addresses().at(0));
  const v1::Job job = client.Ended("short", 1);
  v1::ReportBatch batch;
  batch.mutable_id()->set_job_id(job.id());
  batch.mutable_id()->set_attempt(1);
  batch.set_seq(1'000'000);
  v1::StepReport& report = *batch.add_reports();
  report.set_step(1000);
  report.set_attempt(1);
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  const auto stub = v1::Workers::NewStub(client.channel());
  const auto stream = stub->Reports(&context);
  v1::ReportAck ack;
  ASSERT_TRUE(stream->Write(batch) && stream->Read(&ack));
  context.TryCancel();
  const std::string text = Scrape(server_->metrics_address());
  EXPECT_THAT(text, HasSubstr("tandem_train_step{job_name=\"short\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("tandem_train_samples_total{job_name=\"short\"}"));
  EXPECT_THAT(text, HasSubstr("tandem_device_memory_bytes{job_name=\"short\",kind=\"arena\"}"));
}

TEST_F(SiteTest, RemotePageNeedsAFlag) {
  Start(":0");
  EXPECT_THAT(Get("/"), AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("--page on")));
  EXPECT_THAT(Get("/api/ListJobs"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/healthz"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\r\n\r\nok\n")));
  server_.reset();
  Start(":0", PageMode::kOn);
  EXPECT_THAT(Get("/", "tandem.example"), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace tandem::controller
