// SPDX-License-Identifier: Apache-2.0
// What users ask of the whole controller.

#include <gmock/gmock.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "controller/runtime.pb.h"
#include "jobspec/jobspec.h"
#include "tests/controller/http_client.h"
#include "tests/controller/service_fixture.h"
#include "tests/controller/simulated_worker.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ServiceTest, AJobRunsToSucceeded) {
  SimulatedWorker a("a", address(), {});
  SimulatedWorker b("b", address(), {});
  v1::Job job;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("good", 2), "r1", job).ok());
  EXPECT_EQ(job.owner(), "local");
  const std::string id = job.id();
  const grpc::Status followed = client_->Follow("good", job);
  ASSERT_TRUE(followed.ok()) << followed.error_message();
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
  EXPECT_EQ(job.last_step(), 256);
  EXPECT_EQ(a.starts(), (std::map<std::string, int>{{id, 1}}));

  auto request = JobClient::Of<v1::ListReportsRequest>(id);
  request.set_page_size(200);
  v1::ListReportsResponse page = client_->Ask(&v1::Jobs::Stub::ListReports, request);
  EXPECT_EQ(page.reports_size(), 200);
  request.set_page_token(page.next_page_token());
  page = client_->Ask(&v1::Jobs::Stub::ListReports, request);
  EXPECT_EQ(page.reports_size(), 56);
  EXPECT_TRUE(page.next_page_token().empty());

  const v1::ListEventsResponse events =
      client_->Ask(&v1::Jobs::Stub::ListEvents, JobClient::Of<v1::ListEventsRequest>("good"));
  EXPECT_EQ(events.events(events.events_size() - 1).to(), v1::JOB_STATE_SUCCEEDED);

  // The same request again, when the job is long over.
  v1::Job again;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("good", 2), "r1", again).ok());
  EXPECT_EQ(again.id(), id);
  EXPECT_EQ(client_->Submit(JobClient::SpecOf("other", 2), "r1", again).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(ServiceTest, AutoPrefetchIsChosenOnce) {
  v1::JobSpec spec = JobClient::SpecOf("far", 2);
  spec.mutable_parallelism()->mutable_fsdp()->set_prefetch(-1);  // auto
  v1::Job job;
  const grpc::Status refused = client_->Submit(spec, "r1", job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "for a device that is not known";
  spec.mutable_resources()->set_device(v1::DEVICE_CPU);
  ASSERT_TRUE(client_->Submit(spec, "r1", job).ok());
  const int chosen = job.resolved().parallelism().fsdp().prefetch();
  EXPECT_GE(chosen, 0);
  EXPECT_LE(chosen, 2);
  EXPECT_EQ(job.submitted().parallelism().fsdp().prefetch(), -1);
  EXPECT_EQ(job.resolved_digest(), jobspec::Digest(job.resolved()))
      << "what the ranks get is what was chosen";
  v1::Job again;
  ASSERT_TRUE(client_->Submit(spec, "r1", again).ok());
  EXPECT_EQ(again.id(), job.id());
}

TEST_F(ServiceTest, JobMayBeText) {
  std::string sources;
  for (int i = 0; i < 1000; ++i) {
    sources += "  - {path: /usr/include/" + std::string(100, 'a') + ", name: s" + std::to_string(i) + "}\n";
  }
  v1::SubmitRequest request;
  request.set_text(R"(name: long
model: {preset: llama-tiny}
training: {steps: 1, sequence_length: 64, micro_batch_size: 1, global_batch_size: 1}
data:
  tokenizer: bytes
  validation_fraction: 0
  sources:
)" + sources);
  ASSERT_GT(request.text().size(), size_t{100'000}) << "more than a string of a request may have";
  const v1::ValidateResponse validated = client_->Ask(&v1::Jobs::Stub::Validate, request);
  EXPECT_EQ(validated.resolved().data().sources_size(), 1000);
  const v1::Job job = client_->Ask(&v1::Jobs::Stub::Submit, request);
  EXPECT_EQ(job.name(), "long");
  EXPECT_EQ(job.submitted().data().sources_size(), 1000);
}

TEST_F(ServiceTest, AViolationOfATextHasItsLine) {
  v1::SubmitRequest request;
  request.set_text(R"(name: wrong
model: {preset: llama-tiny}
data: {train: /usr/include, tokenizer: bytes}
training:
  steps: 1
  stepz: 1
  sequence_length: 64
  micro_batch_size: 1
  global_batch_size: 1
)");
  const v1::ValidateResponse validated = client_->Ask(&v1::Jobs::Stub::Validate, request);
  ASSERT_EQ(validated.violations_size(), 1);
  EXPECT_EQ(validated.violations(0).path(), "training.stepz");
  EXPECT_EQ(validated.violations(0).line(), 6);
  v1::Job job;
  EXPECT_EQ(client_->Call(&v1::Jobs::Stub::Submit, request, job).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, CallerLeavingDuringPlanningHasNoJob) {
  v1::JobSpec spec = JobClient::SpecOf("left", 2);
  const int64_t batch = spec.training().global_batch_size();
  spec.mutable_training()->set_global_batch_size(32 * batch);    // so that it takes long enough to be left
  spec.mutable_parallelism()->mutable_fsdp()->set_prefetch(-1);  // auto
  spec.mutable_resources()->set_device(v1::DEVICE_CPU);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  v1::Job job;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
  const grpc::Status left = client_->stub().Submit(&context, request, &job);
  if (left.ok()) {
    GTEST_SKIP() << "its step was simulated within a millisecond";
  }
  // The planner takes one after the other: behind this one the first is over.
  spec.set_name("stays");
  spec.mutable_training()->set_global_batch_size(batch);
  ASSERT_TRUE(client_->Submit(spec, "", job).ok());
  const v1::ListJobsResponse jobs = client_->Ask(&v1::Jobs::Stub::ListJobs);
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).id(), job.id());
}

TEST_F(ServiceTest, CancelStopsARunningJob) {
  SimulatedWorker a("a", address(), {.hold = true});
  v1::Job job = client_->Submitted("held", 1);
  const auto cancel = [&](const char* name) {
    return client_->Call(&v1::Jobs::Stub::Cancel, JobClient::Of<v1::CancelRequest>(name), job);
  };
  ASSERT_TRUE(cancel("held").ok());
  EXPECT_EQ(job.outcome(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(client_->Follow(job.id(), job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.reason(), "CancelledByUser");
  EXPECT_TRUE(cancel("held").ok());
  EXPECT_EQ(cancel("nobody").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, ABadSpecIsRefusedWithEveryViolation) {
  v1::JobSpec spec = JobClient::SpecOf("bad", 2);
  spec.mutable_training()->set_steps(0);
  spec.mutable_training()->set_global_batch_size(3);
  const std::vector<v1::Violation> violations = jobspec::Validate(spec);
  ASSERT_GE(violations.size(), 2U);
  v1::Job job;
  const grpc::Status status = client_->Submit(spec, "", job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message() + "\n", jobspec::ToText(violations)) << "no line is empty";
  RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.BadRequest");
  BadRequest bad_request;
  ASSERT_TRUE(bad_request.ParseFromString(details.details(0).value()));
  EXPECT_EQ(bad_request.field_violations_size(), static_cast<int>(violations.size()));
  EXPECT_EQ(bad_request.field_violations(0).field(), violations[0].path());
}

TEST_F(ServiceTest, ManyViolationsFitInTheTrailers) {
  v1::JobSpec spec = JobClient::SpecOf("bad", 2);
  const std::string junk(5000, '\n');
  spec.set_name(junk);
  spec.set_api_version(junk);
  spec.mutable_data()->set_train(junk);
  spec.mutable_data()->set_tokenizer(junk);
  spec.mutable_training()->set_steps(-1);
  v1::Job job;
  EXPECT_EQ(client_->Submit(spec, "", job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, WhatIsNoMessageIsRefusedAsSuch) {
  const std::vector<std::pair<std::string, std::string>> bad = {{"cut off", "\x0a\x7f"},
                                                                {"not UTF-8", "\x0a\x01\xff"}};
  for (const auto& [method, type] :
       {std::pair<const char*, const char*>{"/tandem.v1.Jobs/GetJob", "tandem.v1.GetJobRequest"},
        {"/tandem.v1.Jobs/Cancel", "tandem.v1.CancelRequest"},
        {"/tandem.v1.Jobs/Watch", "tandem.v1.WatchRequest"}}) {
    for (const auto& [what, bytes] : bad) {
      const grpc::Slice slice(bytes);
      const grpc::ByteBuffer buffer(&slice, 1);
      grpc::ClientContext context;
      JobClient::SetDeadline(context);
      grpc::ByteBuffer response;
      const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
          client_->channel().get(), grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::NORMAL_RPC),
          &context, buffer, &response);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method << ", " << what;
      EXPECT_THAT(status.error_message(), HasSubstr(type)) << what;
    }
  }
}

TEST(MethodTest, UnknownMethodsGetNoSeriesOfTheirOwn) {
  platform::TemporaryFolder folder;
  const std::unique_ptr<Daemon> server = StartServer(folder, {.metrics_listen = "127.0.0.1:0"});
  JobClient client(server->addresses().at(0));
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const std::string method = "/no.such.Service" + std::to_string(i) + "/Call";
    grpc::ByteBuffer response;
    const grpc::Slice slice("");
    const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        client.channel().get(),
        grpc::internal::RpcMethod(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC), &context,
        grpc::ByteBuffer(&slice, 1), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  const std::string text = Scrape(server->metrics_address());
  EXPECT_THAT(text, Not(HasSubstr("no.such")));
  EXPECT_THAT(text,
              HasSubstr("grpc_server_started_total{grpc_service=\"unknown\",grpc_method=\"unknown\"} 100"));
}

TEST_F(ServiceTest, UnknownStatesAreRefused) {
  for (const int state : {0, 10, 42, -1}) {
    v1::ListJobsRequest request;
    request.add_states(v1::JOB_STATE_RUNNING);
    request.add_states(static_cast<v1::JobState>(state));
    v1::ListJobsResponse response;
    const grpc::Status status = client_->Call(&v1::Jobs::Stub::ListJobs, request, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << state;
    EXPECT_THAT(status.error_message(), HasSubstr("states: the number " + std::to_string(state) +
                                                  " is not a state that this version"));
  }
}

TEST_F(ServiceTest, UniqueIdPrefixIsEnough) {
  v1::Job job = client_->Submitted("one", 1);
  const std::string id = job.id();
  for (const size_t length : {4U, 7U, 12U}) {
    v1::Job found;
    ASSERT_TRUE(client_->Get(id.substr(0, length), found).ok()) << length;
    EXPECT_EQ(found.id(), id);
  }
  EXPECT_EQ(client_->Get(id.substr(0, 3), job).error_code(), grpc::StatusCode::NOT_FOUND)
      << "too short to mean it";
  EXPECT_EQ(client_->Get(id + "0", job).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf(id.substr(0, 5), 1), "", job).ok());
  const std::string named = job.id();
  ASSERT_TRUE(client_->Get(id.substr(0, 5), job).ok());
  EXPECT_EQ(job.id(), named) << "a name comes first";

  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  auto request = JobClient::Of<v1::WatchRequest>(id.substr(0, 8));
  const auto stream = client_->stub().Watch(&context, request);
  v1::WatchResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.snapshot().id(), id);
  context.TryCancel();
}

// Nothing else happens on this controller that could wake the stream.
TEST_F(ServiceTest, WatchBegunInAStandstillReportsIt) {
  const SimulatedWorker a("a", address(), {.hold = true, .stopped_for = 60});
  v1::Job job = client_->Submitted("held", 1);
  JobClient::Until([&] { return client_->Get("held", job).ok() && job.progress().stalled(); });
  EXPECT_GE(job.progress().age().seconds(), 60);
  EXPECT_EQ(job.progress().worker(), "a");
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  auto request = JobClient::Of<v1::WatchRequest>("held");
  const auto stream = client_->stub().Watch(&context, request);
  v1::WatchResponse response;
  int reported = 0;
  while (reported < 2 && stream->Read(&response)) {
    reported += response.has_progress() ? 1 : 0;
  }
  EXPECT_EQ(reported, 2);
  EXPECT_TRUE(response.progress().stopped());
  context.TryCancel();
  stream->Finish();
}

TEST_F(ServiceTest, AStuckWatcherBlocksNobody) {
  grpc::ClientContext stuck_context;
  const auto stuck = client_->stub().Watch(&stuck_context, {});  // never read
  for (int i = 0; i < 50; ++i) {
    client_->Submitted("job" + std::to_string(i), 1);
  }
  v1::ListJobsRequest request;
  request.set_page_size(20);
  const v1::ListJobsResponse page = client_->Ask(&v1::Jobs::Stub::ListJobs, request);
  EXPECT_EQ(page.jobs_size(), 20);
  EXPECT_EQ(page.jobs(0).name(), "job49") << "newest first";
  EXPECT_FALSE(page.next_page_token().empty());
  stuck_context.TryCancel();
}

}  // namespace
}  // namespace tandem::controller
