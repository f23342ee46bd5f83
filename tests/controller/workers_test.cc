// SPDX-License-Identifier: Apache-2.0
// The sessions and reports of workers with the whole controller.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "controller/core/rendezvous.h"
#include "proto/protocol.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/service_fixture.h"
#include "tests/controller/simulated_worker.h"
#include "tests/controller/worker_session.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

// A daemon that opens another session before its last one was seen to be broken. The engine would send the
// worker's assignments to a session that is over, and would never hear that the worker has gone.
TEST_F(ServiceTest, LatestOfConcurrentSessionsWins) {
  constexpr int kRounds = 50;
  constexpr int kSessions = 8;
  const auto workers = v1::Workers::NewStub(client_->channel());
  const auto connected = [&] {
    const v1::ListWorkersResponse response = client_->Workers();
    return response.workers_size() == 1 && response.workers(0).connected();
  };
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id("w");
  hello.mutable_hello()->set_incarnation(7);
  hello.mutable_hello()->set_protocol_min(proto::kProtocol);
  hello.mutable_hello()->set_protocol_max(proto::kProtocol);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<grpc::ClientContext> contexts(kSessions);
    std::atomic<int> welcomed = 0;
    std::vector<std::thread> sessions;
    for (grpc::ClientContext& context : contexts) {
      JobClient::SetDeadline(context);
      sessions.emplace_back([&] {
        const auto stream = workers->Session(&context);
        stream->Write(hello);
        v1::ControllerMessage answer;
        welcomed += stream->Read(&answer) && answer.has_welcome() ? 1 : 0;
        while (stream->Read(&answer)) {
        }
        stream->Finish();
      });
    }
    JobClient::Until([&] { return welcomed > 0 && connected(); });
    for (grpc::ClientContext& context : contexts) {
      context.TryCancel();
    }
    for (std::thread& session : sessions) {
      session.join();
    }
    JobClient::Until([&] { return !connected(); });
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// An empty list of what it should run, which is all that there is to send, would stop its jobs.
TEST(FailedStoreTest, WorkerConnectingThenGetsNoAssignments) {
  const platform::TemporaryFolder folder;
  absl::Notification failed;
  ServerOptions options{.state_directory = folder.path(), .listen = {"127.0.0.1:0"}, .metrics_listen = "off"};
  options.fatal = [&](const absl::Status&) { failed.Notify(); };  // the daemon ends
  const auto server = Daemon::Start(options, platform::SteadyClock(), platform::SystemRandom());
  ASSERT_TRUE(server.ok()) << server.status();
  std::filesystem::remove(folder.path() + "/controller.db");
  ASSERT_TRUE(failed.WaitForNotificationWithTimeout(absl::Seconds(30)));
  const JobClient client((*server)->addresses().at(0));
  const auto workers = v1::Workers::NewStub(client.channel());
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  const std::unique_ptr<WorkerStream> session = workers->Session(&context);
  v1::WorkerMessage message;
  *message.mutable_hello() = HelloOf("w", 1);
  ASSERT_TRUE(session->Write(message));
  v1::ControllerMessage answer;
  EXPECT_FALSE(session->Read(&answer)) << answer.DebugString();
  const grpc::Status status = session->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the controller's store has failed: "));
}

// Each costs it a line and the controller the value, so a worker that asks and does not read could cost the
// controller its memory.
TEST_F(ServiceTest, ARepeatedGetIsAnsweredOnce) {
  constexpr int kGets = 200;
  WorkerSession session(client_->channel(), HelloOf("w", 1));
  client_->Submitted("one", 1);
  const v1::AttemptId id = FirstAttempt(*session);
  v1::WorkerMessage message;
  message.set_seq(2);
  *message.mutable_set()->mutable_id() = id;
  message.mutable_set()->set_key("k");
  message.mutable_set()->set_value(std::string(1 << 20, 'x'));
  ASSERT_TRUE(session->Write(message));
  for (uint64_t seq = 3; seq < 3 + kGets; ++seq) {
    message.set_seq(seq);
    *message.mutable_get()->mutable_id() = id;
    message.mutable_get()->set_key("k");
    ASSERT_TRUE(session->Write(message));
  }
  message.set_seq(3 + kGets);
  message.mutable_heartbeat()->set_draining(true);
  ASSERT_TRUE(session->Write(message));
  JobClient::Until([&] {  // so it has taken all that came before
    const v1::ListWorkersResponse response = client_->Workers();
    return response.workers_size() == 1 && response.workers(0).reason() == "Draining";
  });
  int values = 0;
  v1::ControllerMessage answer;
  do {
    ASSERT_TRUE(session->Read(&answer));
    values += answer.has_value() ? 1 : 0;
  } while (answer.ack() < 2 + kGets);
  EXPECT_GE(values, 1);
  EXPECT_LT(values, kGets / 4);
  session.Cancel();
}

TEST_F(ServiceTest, WaitingForTooManyKeysEndsTheSession) {
  constexpr size_t kKeyBytes = 16'000;  // of a key, which may have 16 KiB
  WorkerSession session(client_->channel(), HelloOf("w", 1));
  client_->Submitted("one", 1);
  v1::WorkerMessage message;
  *message.mutable_get()->mutable_id() = FirstAttempt(*session);
  for (uint64_t seq = 2; seq < 2 + 2 * Rendezvous::kMostBytes / kKeyBytes; ++seq) {
    message.set_seq(seq);
    message.mutable_get()->set_key(std::string(kKeyBytes, 'k') + std::to_string(seq));
    if (!session->Write(message)) {
      break;
    }
  }
  v1::ControllerMessage answer;
  while (session->Read(&answer)) {
  }
  const grpc::Status status = session->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("worker w has set and waits for more"));
  JobClient::Until([&] {
    const v1::ListWorkersResponse response = client_->Workers();
    return response.workers_size() == 1 && !response.workers(0).connected();
  });
}

TEST_F(ServiceTest, AWorkerThatListsTooMuchIsRefused) {
  const auto workers = v1::Workers::NewStub(client_->channel());
  const auto answer_to = [&](const v1::Hello& hello) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const auto session = workers->Session(&context);
    v1::WorkerMessage message;
    message.set_seq(1);
    *message.mutable_hello() = hello;
    session->Write(message);
    v1::ControllerMessage answer;
    while (session->Read(&answer)) {
    }
    return session->Finish().error_message();
  };
  v1::Hello hello = HelloOf("w", 1);
  hello.mutable_inventory()->mutable_slots(0)->set_name(std::string(16'385, 'n'));
  EXPECT_EQ(answer_to(hello), "hello.inventory.slots.name: 16385 bytes; allowed are at most 16384");
  hello = HelloOf("w", 40);
  for (v1::Slot& slot : *hello.mutable_inventory()->mutable_slots()) {
    slot.set_name(std::string(16'000, 'n'));
  }
  EXPECT_THAT(answer_to(hello), HasSubstr("its 40 slots take 640"));
  EXPECT_EQ(client_->Workers().workers_size(), 0);
}

// As one that runs on an old copy of its state must not take workers back to the past.
TEST_F(ServiceTest, WorkerOfALaterTermIsRefused) {
  const v1::ServerInfo info = client_->Ask(&v1::Jobs::Stub::GetServerInfo);
  const auto workers =
      v1::Workers::NewStub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
  for (const std::string& store : {info.store_id(), std::string("another")}) {
    grpc::ClientContext context;
    const auto stream = workers->Session(&context);
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id("w");
    hello.mutable_hello()->set_protocol_min(1);
    hello.mutable_hello()->set_protocol_max(1);
    hello.mutable_hello()->set_store_id(store);
    hello.mutable_hello()->set_highest_term(1000);
    ASSERT_TRUE(stream->Write(hello));
    v1::ControllerMessage answer;
    ASSERT_TRUE(stream->Read(&answer));
    if (store == info.store_id()) {
      EXPECT_EQ(answer.refused().reason(), "OldTerm") << answer.DebugString();
    } else {
      EXPECT_TRUE(answer.has_welcome()) << "terms of two stores cannot be compared: " << answer.DebugString();
    }
    context.TryCancel();
  }
}

TEST_F(ServiceTest, WorkersAreListed) {
  SimulatedWorker b("b", address(), {.slots = 2});
  SimulatedWorker a("a", address(), {});
  v1::ListWorkersResponse response;
  JobClient::Until([&] {
    response = client_->Workers();
    return response.workers_size() == 2;
  });
  EXPECT_EQ(response.workers(0).id(), "a");
  EXPECT_EQ(response.workers(1).slots(), 2);
  EXPECT_TRUE(response.workers(0).schedulable());
  EXPECT_EQ(response.workers(0).device(), v1::DEVICE_CPU);
}

TEST_F(ServiceTest, ReportsOfUnknownJobsAreNotAcknowledged) {
  const SimulatedWorker a("a", address(), {.hold = true});
  v1::Job job = client_->Submitted("held", 1);
  JobClient::Until([&] { return !a.starts().empty(); });
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  const auto workers = v1::Workers::NewStub(client_->channel());
  const auto stream = workers->Reports(&context);
  const std::string ours = job.id();
  const std::pair<std::string, int> attempts[] = {{"0123456789ab", 1}, {ours, 2}, {ours, 0}, {ours, 1}};
  for (const auto& [id, attempt] : attempts) {
    v1::ReportBatch batch;
    batch.mutable_id()->set_job_id(id);
    batch.mutable_id()->set_attempt(attempt);
    batch.set_seq(1);
    v1::StepReport& report = *batch.add_reports();
    report.set_step(1);
    report.set_loss(attempt);
    ASSERT_TRUE(stream->Write(batch));
  }
  v1::ReportAck ack;
  ASSERT_TRUE(stream->Read(&ack));
  EXPECT_EQ(ack.id().job_id(), ours);
  EXPECT_EQ(ack.id().attempt(), 1) << "the worker keeps the others for the controller whose they are";
  const v1::ListReportsResponse reports =
      client_->Ask(&v1::Jobs::Stub::ListReports, JobClient::Of<v1::ListReportsRequest>(ours));
  ASSERT_EQ(reports.reports_size(), 1);
  EXPECT_EQ(reports.reports(0).loss(), 1);
  context.TryCancel();
}

}  // namespace
}  // namespace tandem::controller
