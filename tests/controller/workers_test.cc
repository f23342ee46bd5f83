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
#include "proto/time.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/service_fixture.h"
#include "tests/controller/simulated_worker.h"
#include "tests/controller/worker_session.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A clock that is there before the controller that reads it, and after it.
class HasClock {
 protected:
  platform::FakeClock clock_;
};

// The whole controller with a clock that the test moves, so that it does not matter how fast the machine is.
class ClockedServiceTest : protected HasClock, public ServiceTest {
 protected:
  explicit ClockedServiceTest(const Limits& limits) : ServiceTest(limits, {}, clock_) {}

  absl::Time LastSeen(const std::string& id) {
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    v1::ListWorkersResponse response;
    EXPECT_TRUE(client_->stub().ListWorkers(&context, {}, &response).ok());
    for (const v1::Worker& worker : response.workers()) {
      if (worker.id() == id) {
        return proto::FromProto(worker.last_seen());
      }
    }
    return absl::InfinitePast();
  }

  // Until the controller has heard at the new time from this worker, which answers heartbeats. `interval`:
  // that of the heartbeats; after twice as long without a word the controller would have stood still.
  void Pass(absl::Duration interval, const std::string& worker) {
    clock_.Advance(interval);
    JobClient::Until([&] { return LastSeen(worker) == clock_.Now(); });
  }
};

class TimeoutTest : public ClockedServiceTest {
 protected:
  static constexpr absl::Duration kTimeout = absl::Seconds(8);
  TimeoutTest() : ClockedServiceTest({.worker_timeout = kTimeout}) {}
};

// A frozen machine, or a connection that is half open: nothing comes, and nothing says that nothing will.
TEST_F(TimeoutTest, ASilentWorkerIsLostWithinFiveQuartersOfTheTimeout) {
  const SimulatedWorker a("a", address(), {.hold = true, .mute = true});
  v1::Job job;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("held", 1), "", job).ok());
  JobClient::Until([&] { return client_->Get("held", job).ok() && job.state() == v1::JOB_STATE_RUNNING; });
  const SimulatedWorker b("b", address(), {.slots = 0});
  for (const absl::Time start = clock_.Now(); job.state() < v1::JOB_STATE_SUCCEEDED;) {
    ASSERT_LT(clock_.Now(), start + 3 * kTimeout) << "it is not lost";
    Pass(absl::Seconds(1), "b");
    ASSERT_TRUE(client_->Get("held", job).ok());
  }
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.reason(), "WorkerLost");
  grpc::ClientContext context;
  v1::ListEventsRequest request;
  request.set_job("held");
  v1::ListEventsResponse events;
  ASSERT_TRUE(client_->stub().ListEvents(&context, request, &events).ok());
  absl::Time lost;
  for (const v1::Event& event : events.events()) {
    if (event.to() == v1::JOB_STATE_STOPPING) {
      lost = proto::FromProto(event.time());
      break;
    }
  }
  const absl::Time last_message = LastSeen("a");
  EXPECT_GE(lost - last_message, kTimeout);
  EXPECT_LE(lost - last_message, 1.25 * kTimeout);
}

TEST_F(ServiceTest, ASecondProcessOfAWorkersIdIsRefused) {
  SimulatedWorker first("a", address(), {});
  v1::Job job;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("one", 1), "", job).ok());
  ASSERT_TRUE(client_->Follow("one", job).ok());
  SimulatedWorker second("a", address(), {});
  JobClient::Until([&] { return !second.refused().empty(); });
  EXPECT_EQ(second.refused(), "WorkerIdInUse");
}

class HeldIdTest : public ClockedServiceTest {
 protected:
  // A session that is silent for a second is closed.
  HeldIdTest() : ClockedServiceTest({.worker_timeout = absl::Seconds(2)}) {}
  static constexpr absl::Duration kHeartbeat = absl::Milliseconds(250);  // the interval that follows from it

  static v1::WorkerMessage HelloOf(uint64_t incarnation, bool draining) {
    v1::WorkerMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_worker_id("a");
    hello.set_incarnation(incarnation);
    hello.set_protocol_min(proto::kProtocol);
    hello.set_protocol_max(proto::kProtocol);
    hello.mutable_inventory()->set_draining(draining);
    return message;
  }

  // What the controller first answers a process of the worker's id.
  v1::ControllerMessage AnswerTo(uint64_t incarnation) {
    const auto workers = v1::Workers::NewStub(client_->channel());
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const auto stream = workers->Session(&context);
    stream->Write(HelloOf(incarnation, false));
    v1::ControllerMessage answer;
    EXPECT_TRUE(stream->Read(&answer));
    context.TryCancel();
    stream->Finish();
    return answer;
  }

  // While it lives, a process has the worker's id and answers heartbeats.
  class Holder {
   public:
    Holder(const std::shared_ptr<grpc::Channel>& channel, bool draining)
        : stub_(v1::Workers::NewStub(channel)), stream_(stub_->Session(&context_)) {
      stream_->Write(HelloOf(/*incarnation=*/1, draining));
      v1::ControllerMessage answer;
      EXPECT_TRUE(stream_->Read(&answer) && answer.has_welcome());
      thread_ = std::thread([this] {
        v1::WorkerMessage heartbeat;
        heartbeat.mutable_heartbeat();
        for (v1::ControllerMessage message; stream_->Read(&message);) {
          if (!silent_) {
            stream_->Write(heartbeat);
          } else {
            unanswered_ += message.has_heartbeat() ? 1 : 0;
          }
        }
        stream_->Finish();
      });
    }
    ~Holder() {
      context_.TryCancel();
      thread_.join();
    }
    // From now on it answers nothing, as one whose machine has lost its network.
    void FallSilent() { silent_ = true; }
    // The heartbeats that it has got since then.
    int unanswered() const { return unanswered_; }

   private:
    std::atomic<bool> silent_ = false;
    std::atomic<int> unanswered_ = 0;
    grpc::ClientContext context_;
    std::unique_ptr<v1::Workers::Stub> stub_;
    std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::ControllerMessage>> stream_;
    std::thread thread_;
  };
};

// A worker that was killed and started again is early; two workers of one id are a mistake that lasts.
TEST_F(HeldIdTest, AProcessWhoseIdStaysTakenIsTurnedAwayForGood) {
  const Holder holder(client_->channel(), /*draining=*/false);
  const v1::ControllerMessage first = AnswerTo(2);
  EXPECT_EQ(first.refused().reason(), "WorkerIdInUse");
  EXPECT_FALSE(first.refused().final());
  JobClient::Until([&] {
    Pass(kHeartbeat, "a");
    return AnswerTo(2).refused().final();
  });
  EXPECT_FALSE(AnswerTo(3).refused().final()) << "each has its own time";
}

// A service manager starts the process whose id is taken again and again.
TEST_F(HeldIdTest, AfterManyOtherProcessesOfAnIdTheNextIsTurnedAwayForGoodToo) {
  const Holder holder(client_->channel(), /*draining=*/false);
  constexpr uint64_t kMany = 20;
  for (uint64_t incarnation = 2; incarnation < 2 + kMany; ++incarnation) {
    EXPECT_FALSE(AnswerTo(incarnation).refused().final());
  }
  JobClient::Until([&] {
    Pass(kHeartbeat, "a");
    return AnswerTo(2 + kMany).refused().final();
  });
}

TEST_F(HeldIdTest, WhileTheHolderOfAnIdIsSilentNobodyIsTurnedAwayForGood) {
  Holder holder(client_->channel(), /*draining=*/false);
  EXPECT_FALSE(AnswerTo(2).refused().final());
  for (int i = 0; i < 8; ++i) {
    Pass(kHeartbeat, "a");
  }
  // It would be turned away now.
  holder.FallSilent();
  for (int i = 1; i <= 4; ++i) {  // the first may pass an answer that is still on its way
    clock_.Advance(kHeartbeat);
    JobClient::Until([&] { return holder.unanswered() >= i; });
  }
  JobClient::Until([&] {
    const v1::ControllerMessage answer = AnswerTo(2);
    EXPECT_FALSE(answer.refused().final());
    clock_.Advance(kHeartbeat);
    return answer.has_welcome();
  });
}

TEST_F(HeldIdTest, AProcessThatFollowsOneWhichIsAskedToEndTriesAgainUntilThen) {
  {
    const Holder holder(client_->channel(), /*draining=*/true);
    for (int i = 0; i < 12; ++i) {  // longer than the other test takes
      Pass(kHeartbeat, "a");
      const v1::ControllerMessage answer = AnswerTo(2);
      EXPECT_EQ(answer.refused().reason(), "WorkerIdInUse");
      EXPECT_FALSE(answer.refused().final());
    }
  }
  JobClient::Until([&] { return AnswerTo(2).has_welcome(); });
}

TEST_F(HeldIdTest, AWorkerThatHasLeftAsItWasAskedToIsNotListed) {
  const auto listed = [&] {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(client_->stub().ListWorkers(&context, {}, &response).ok());
    return response.workers_size();
  };
  testing::internal::CaptureStderr();
  {
    const Holder holder(client_->channel(), /*draining=*/true);
    EXPECT_EQ(listed(), 1);
  }
  JobClient::Until([&] { return listed() == 0; });
  EXPECT_EQ(listed(), 0);  // the log comes behind the first answer
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(R"("level":"info","msg":"worker left, as it was asked to")"));
  EXPECT_THAT(log, Not(HasSubstr(R"("level":"warning")")));
}

// Somebody is to look for its ranks.
TEST_F(HeldIdTest, AWorkerThatGoesWhileItsRanksEndHasNotLeftAsItWasAskedTo) {
  testing::internal::CaptureStderr();
  {
    grpc::ClientContext context;
    const auto stub = v1::Workers::NewStub(client_->channel());
    v1::WorkerMessage message = HelloOf(/*incarnation=*/1, /*draining=*/true);
    v1::AttemptStatus& running = *message.mutable_hello()->mutable_inventory()->add_attempts();
    running.mutable_id()->set_job_id("j");
    const auto session = Welcomed(*stub, context, message.hello());
    ASSERT_NE(session, nullptr);
    context.TryCancel();
    session->Finish();
  }
  const auto reason = [&] {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(client_->stub().ListWorkers(&context, {}, &response).ok());
    return response.workers_size() == 1 ? response.workers(0).reason() : "none";
  };
  JobClient::Until([&] { return reason() == "NotConnected"; });
  EXPECT_EQ(reason(), "NotConnected");  // the log comes behind the first answer
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(R"("level":"warning","msg":"worker disconnected")"));
  EXPECT_THAT(log, Not(HasSubstr("as it was asked to")));
}

// A daemon that opens another session before its last one was seen to be broken. The engine would send the
// worker's assignments to a session that is over, and would never hear that the worker has gone.
TEST_F(ServiceTest, OfSessionsThatComeAtOnceTheEngineKnowsTheLast) {
  constexpr int kRounds = 50;
  constexpr int kSessions = 8;
  const auto workers = v1::Workers::NewStub(client_->channel());
  const auto connected = [&] {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(client_->stub().ListWorkers(&context, {}, &response).ok());
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
TEST(FailedStoreTest, AWorkerThatConnectsThenHearsOfItAndGetsNoAssignments) {
  const platform::TemporaryFolder folder;
  absl::Notification failed;
  ServerOptions options{.state_directory = folder.path(), .listen = {"127.0.0.1:0"}, .metrics_listen = "off"};
  options.fatal = [&](const absl::Status&) { failed.Notify(); };  // the daemon ends
  const auto server = Server::Start(options, platform::SteadyClock(), platform::SystemRandom());
  ASSERT_TRUE(server.ok()) << server.status();
  std::filesystem::remove(folder.path() + "/controller.db");
  ASSERT_TRUE(failed.WaitForNotificationWithTimeout(absl::Seconds(30)));
  const JobClient client((*server)->addresses().at(0));
  const auto workers = v1::Workers::NewStub(client.channel());
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  const std::unique_ptr<WorkerSession> session = workers->Session(&context);
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
TEST_F(ServiceTest, AValueThatAWorkerAsksForAgainBeforeItReadsIsOwedOnce) {
  constexpr int kGets = 200;
  grpc::ClientContext context;
  const auto workers = v1::Workers::NewStub(client_->channel());
  const std::unique_ptr<WorkerSession> session = Welcomed(*workers, context, HelloOf("w", 1));
  ASSERT_NE(session, nullptr);
  v1::Job job;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("one", 1), "", job).ok());
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
    grpc::ClientContext list;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(client_->stub().ListWorkers(&list, {}, &response).ok());
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
  context.TryCancel();
}

TEST_F(ServiceTest, TheSessionOfAWorkerEndsThatWaitsForMoreKeysThanItsRanksCanNeed) {
  constexpr size_t kKeyBytes = 60'000;  // of a key, of which a message may have 64 KiB
  grpc::ClientContext context;
  const auto workers = v1::Workers::NewStub(client_->channel());
  const std::unique_ptr<WorkerSession> session = Welcomed(*workers, context, HelloOf("w", 1));
  ASSERT_NE(session, nullptr);
  v1::Job job;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("one", 1), "", job).ok());
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
    grpc::ClientContext list;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(client_->stub().ListWorkers(&list, {}, &response).ok());
    return response.workers_size() == 1 && !response.workers(0).connected();
  });
}

// As one that runs on an old copy of its state must not take workers back to the past.
TEST_F(ServiceTest, AWorkerThatHasSeenALaterTermOfThisStoreIsTurnedAway) {
  grpc::ClientContext info_context;
  v1::ServerInfo info;
  ASSERT_TRUE(client_->stub().GetServerInfo(&info_context, {}, &info).ok());
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
    grpc::ClientContext context;
    response.Clear();
    EXPECT_TRUE(client_->stub().ListWorkers(&context, {}, &response).ok());
    return response.workers_size() == 2;
  });
  EXPECT_EQ(response.workers(0).id(), "a");
  EXPECT_EQ(response.workers(1).slots(), 2);
  EXPECT_TRUE(response.workers(0).schedulable());
  EXPECT_EQ(response.workers(0).device(), v1::DEVICE_CPU);
}

TEST_F(ServiceTest, ReportsOfWhatIsNotHereAreNotAcknowledged) {
  const SimulatedWorker a("a", address(), {.hold = true});
  v1::Job job;
  ASSERT_TRUE(client_->Submit(JobClient::SpecOf("held", 1), "", job).ok());
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
  grpc::ClientContext list_context;
  v1::ListReportsRequest request;
  request.set_job(ours);
  v1::ListReportsResponse reports;
  ASSERT_TRUE(client_->stub().ListReports(&list_context, request, &reports).ok());
  ASSERT_EQ(reports.reports_size(), 1);
  EXPECT_EQ(reports.reports(0).loss(), 1);
  context.TryCancel();
}

}  // namespace
}  // namespace tandem::controller
