// SPDX-License-Identifier: Apache-2.0
// What the silence of a worker leads to, by a clock that the test moves: its loss, and who may have its id.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "proto/protocol.h"
#include "proto/time.h"
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
    const v1::ListWorkersResponse response = client_->Workers();
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
TEST_F(TimeoutTest, SilentWorkerIsLostWithinFiveQuarterTimeouts) {
  const SimulatedWorker a("a", address(), {.hold = true, .mute = true});
  client_->Submitted("held", 1);
  v1::Job job = client_->AwaitRunning("held");
  const SimulatedWorker b("b", address(), {.slots = 0});
  for (const absl::Time start = clock_.Now(); job.state() < v1::JOB_STATE_SUCCEEDED;) {
    ASSERT_LT(clock_.Now(), start + 3 * kTimeout) << "it is not lost";
    Pass(absl::Seconds(1), "b");
    ASSERT_TRUE(client_->Get("held", job).ok());
  }
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.reason(), "WorkerLost");
  const v1::ListEventsResponse events =
      client_->Ask(&v1::Jobs::Stub::ListEvents, JobClient::Of<v1::ListEventsRequest>("held"));
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

class HeldIdTest : public ClockedServiceTest {
 protected:
  // A session that is silent for a second is closed.
  HeldIdTest() : ClockedServiceTest({.worker_timeout = absl::Seconds(2)}) {}
  static constexpr absl::Duration kHeartbeat = absl::Milliseconds(250);  // the interval that follows from it

  static v1::Hello HelloOf(uint64_t incarnation, bool draining) {
    v1::Hello hello = controller::HelloOf("a", /*slots=*/0, incarnation);
    hello.mutable_inventory()->set_draining(draining);
    return hello;
  }

  // What the controller first answers a process of the worker's id.
  v1::ControllerMessage AnswerTo(uint64_t incarnation) {
    const auto workers = v1::Workers::NewStub(client_->channel());
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const auto stream = workers->Session(&context);
    v1::WorkerMessage message;
    *message.mutable_hello() = HelloOf(incarnation, false);
    stream->Write(message);
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
        : session_(channel, HelloOf(/*incarnation=*/1, draining)) {
      thread_ = std::thread([this] {
        v1::WorkerMessage heartbeat;
        heartbeat.mutable_heartbeat();
        for (v1::ControllerMessage message; session_->Read(&message);) {
          if (!silent_) {
            session_->Write(heartbeat);
          } else {
            unanswered_ += message.has_heartbeat() ? 1 : 0;
          }
        }
        session_->Finish();
      });
    }
    ~Holder() {
      session_.Cancel();
      thread_.join();
    }
    // From now on it answers nothing, as one whose machine has lost its network.
    void FallSilent() { silent_ = true; }
    // The heartbeats that it has got since then.
    int unanswered() const { return unanswered_; }

   private:
    std::atomic<bool> silent_ = false;
    std::atomic<int> unanswered_ = 0;
    WorkerSession session_;
    std::thread thread_;
  };
};

// A worker that was killed and started again is early; two workers of one id are a mistake that lasts.
TEST_F(HeldIdTest, ProcessWithTakenIdIsRefusedForGood) {
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
TEST_F(HeldIdTest, IdHeldThroughManyAttemptsIsRefused) {
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

TEST_F(HeldIdTest, SilentHolderLosesItsId) {
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

TEST_F(HeldIdTest, ASuccessorRetriesUntilTheDrainingProcessEnds) {
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

TEST_F(HeldIdTest, WorkerThatLeftIsNotListed) {
  const auto listed = [&] { return client_->Workers().workers_size(); };
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
TEST_F(HeldIdTest, WorkerGoneBeforeItsRanksHasNotLeft) {
  testing::internal::CaptureStderr();
  {
    v1::Hello hello = HelloOf(/*incarnation=*/1, /*draining=*/true);
    hello.mutable_inventory()->add_attempts()->mutable_id()->set_job_id("j");
    WorkerSession session(client_->channel(), hello);
    session.Cancel();
    session->Finish();
  }
  const auto reason = [&] {
    const v1::ListWorkersResponse response = client_->Workers();
    return response.workers_size() == 1 ? response.workers(0).reason() : "none";
  };
  JobClient::Until([&] { return reason() == "NotConnected"; });
  EXPECT_EQ(reason(), "NotConnected");  // the log comes behind the first answer
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(R"("level":"warning","msg":"worker disconnected")"));
  EXPECT_THAT(log, Not(HasSubstr("as it was asked to")));
}

}  // namespace
}  // namespace tandem::controller
