// SPDX-License-Identifier: Apache-2.0
// Checks of paths that never answer, on their own and in a daemon of this process.
#include "worker/job_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/synchronization/notification.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/random.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/no_threads.h"
#include "tests/worker/daemon_fixture.h"
#include "worker/daemon.h"
#include "worker/mailbox.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// File systems that do not answer below /dead until the test mends them. Copies are of the same ones, which
// live as long as a thread that hangs.
class DeadMount {
 public:
  void Mend() const {
    if (!mended_->HasBeenNotified()) {
      mended_->Notify();
    }
  }

  JobChecks Checks() const {
    return {.check_files =
                [mended = mended_](const v1::JobSpec& resolved, const jobspec::BeforePath& before) {
                  const std::string& path = resolved.data().train();
                  if (before("data.train", path) && path.starts_with("/dead")) {
                    mended->WaitForNotification();
                  }
                  return std::string();
                },
            .name_program = [](const v1::JobSpec&) { return InstructionNames(); }};
  }

 private:
  std::shared_ptr<absl::Notification> mended_ = std::make_shared<absl::Notification>();
};

v1::JobSpec SpecOf(const std::string& path) {
  v1::JobSpec spec;
  spec.mutable_data()->set_train(path);
  return spec;
}

class CheckThreadsTest : public testing::Test {
 protected:
  ~CheckThreadsTest() override { mount_.Mend(); }

  void Start(const std::string& job, const std::string& path) {
    v1::Assignment assignment = CoreHarness::Job(job, 1);
    *assignment.mutable_resolved() = SpecOf(path);
    checks_->Start(assignment);
  }
  // The next inputs; the job and the word of each.
  std::string Next() {
    const std::optional<Input> input = inputs_->Take(absl::Seconds(20));
    if (!input) {
      return "nothing";
    }
    if (const auto* const looking = std::get_if<LookingAt>(&*input)) {
      return looking->attempt.job + " looks at " + looking->what;
    }
    const Checked& checked = std::get<Checked>(*input);
    return checked.attempt.job + " checked" + (checked.problem.empty() ? "" : ": " + checked.problem);
  }
  bool IsQuiet() { return !inputs_->Take(absl::Milliseconds(50)).has_value(); }

  DeadMount mount_;
  platform::FakeClock clock_;
  std::shared_ptr<Mailbox<Input>> inputs_ = std::make_shared<Mailbox<Input>>();
  std::unique_ptr<CheckThreads> checks_ = std::make_unique<CheckThreads>(
      mount_.Checks(), clock_, [inputs = inputs_](Input input) { inputs->Put(std::move(input)); });
};

TEST_F(CheckThreadsTest, OneThatHangsHoldsUpNoOther) {
  Start("a", "/dead/1");
  EXPECT_EQ(Next(), "a looks at data.train /dead/1");
  Start("b", "/there");
  EXPECT_EQ(Next(), "b looks at data.train /there");
  EXPECT_EQ(Next(), "b looks at ");
  EXPECT_EQ(Next(), "b checked");
}

TEST_F(CheckThreadsTest, HangingChecksAreBounded) {
  for (int i = 0; i < CheckThreads::kMost; ++i) {
    Start("a", "/dead/" + std::to_string(i));
    EXPECT_THAT(Next(), StartsWith("a looks at data.train /dead/"));
  }
  Start("b", "/there");
  Start("c", "/there");
  EXPECT_TRUE(IsQuiet());
  checks_->Drop({.job = "b", .attempt = 1});
  mount_.Mend();
  std::map<std::string, int> words;
  for (int i = 0; i < 2 * CheckThreads::kMost + 3; ++i) {
    ++words[Next()];
  }
  EXPECT_EQ(words["a checked"], CheckThreads::kMost);
  EXPECT_EQ(words["c checked"], 1);
  EXPECT_TRUE(IsQuiet());
}

TEST_F(CheckThreadsTest, HangingPathIsSkippedByTheNextAttempt) {
  Start("a", "/dead/1");
  EXPECT_EQ(Next(), "a looks at data.train /dead/1");
  clock_.Advance(kPathLimit - absl::Seconds(1));
  Start("b", "/dead/1");
  EXPECT_EQ(Next(), "b looks at data.train /dead/1") << "it may be only slow";
  clock_.Advance(absl::Seconds(1));
  Start("c", "/dead/1");
  EXPECT_THAT(Next(), StartsWith("c checked: data.train /dead/1 is not looked at, since a check of it"));
}

TEST_F(CheckThreadsTest, WithoutThreadsLaterChecksWait) {
  {
    const platform::NoThreads none;
    Start("a", "/there");
    EXPECT_THAT(Next(),
                StartsWith("a checked: its files cannot be checked on this worker: start a thread: "));
  }
  Start("b", "/dead/1");
  EXPECT_EQ(Next(), "b looks at data.train /dead/1");
  {
    const platform::NoThreads none;
    Start("c", "/there");
    EXPECT_TRUE(IsQuiet());
  }
  mount_.Mend();
  EXPECT_EQ(Next(), "b looks at ");
  EXPECT_EQ(Next(), "b checked");
  EXPECT_EQ(Next(), "c looks at data.train /there");
}

// Or it would be refused as one that waits for paths that hang, and the limit would not be looked at.
TEST_F(CheckThreadsTest, WithoutThreadsACheckFailsWithTheReason) {
  Start("a", "/dead/1");
  EXPECT_EQ(Next(), "a looks at data.train /dead/1");
  clock_.Advance(kPathLimit);
  const platform::NoThreads none;
  Start("b", "/there");
  EXPECT_THAT(Next(), StartsWith("b checked: its files cannot be checked on this worker: start a thread: "));
}

TEST_F(CheckThreadsTest, DestructionWaitsForNoCheck) {
  Start("a", "/dead/1");
  EXPECT_EQ(Next(), "a looks at data.train /dead/1");
  checks_.reset();
  mount_.Mend();
  EXPECT_TRUE(IsQuiet());
}

// With a controller over real gRPC and fake trainers as processes.
TEST_F(DaemonTest, AHangingPathHoldsUpNoOtherJob) {
  const DeadMount mount;
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Open(
      {.controller = {.target = controller_->address()},
       .settings = CoreHarness(/*num_slots=*/2).state().settings,
       .state_folder = folder_ + "/state",
       .trainer = TANDEM_FAKE_TRAINER},
      mount.Checks(), platform::SteadyClock(), platform::SystemRandom(), platform::SystemFiles());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  std::thread thread([&] { EXPECT_TRUE((*daemon)->Run().ok()); });

  v1::Assignment stuck = CoreHarness::Job("stuck", 1);
  *stuck.mutable_resolved() = SpecOf("/dead/data");
  stuck.mutable_resolved()->set_name("steps-5");
  v1::Assignment other = CoreHarness::Job("other", 1);
  *other.mutable_resolved() = SpecOf("/there");
  other.mutable_resolved()->set_name("steps-5");
  other.mutable_ranks(0)->set_slot(1);
  other.mutable_slots(0)->set_slot(1);
  const auto ended = [](const std::string& job) {
    return [key = AttemptKey{.job = job, .attempt = 1}](const Seen& seen) {
      const auto it = seen.statuses.find(key);
      return it != seen.statuses.end() && it->second.ended();
    };
  };
  controller_->Want({stuck});
  ASSERT_TRUE(WaitForHellos(1));
  controller_->Want({stuck, other});
  EXPECT_TRUE(controller_->WaitFor(ended("other"))) << "beside it";
  EXPECT_FALSE(ended("stuck")(controller_->seen()));
  controller_->Want({other});
  EXPECT_TRUE(controller_->WaitFor(ended("stuck"))) << "without its check";

  mount.Mend();
  (*daemon)->AskShutdown(absl::ZeroDuration());
  thread.join();
  EXPECT_NE(access((folder_ + "/state/attempts/stuck/attempt-1/ranks.json").c_str(), F_OK), 0)
      << "the check that came back late starts nothing";
  EXPECT_EQ(access((folder_ + "/state/attempts/stuck/attempt-1/ended.pb").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace tandem::worker
