// SPDX-License-Identifier: Apache-2.0
#include "controller/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "controller/store/store.h"
#include "tests/controller/job_builder.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

absl::Status Submitted(Engine& engine, const std::string& name) {
  absl::Status status;
  absl::Notification answered;
  engine.Post(SubmitOf(name, 1), [&](const Engine::Reply& reply) {
    status = reply.status;
    answered.Notify();
  });
  answered.WaitForNotification();
  return status;
}

// Nothing looks at the files here but the commit itself. A daemon looks at times as well
// (exhaustion_test.cc).
TEST(EngineTest, AfterItsStoreWasDeletedTheNextSubmitIsRefusedWithTheReason) {
  platform::TemporaryFolder folder;
  platform::SeededRandom random(1);
  const platform::FakeClock clock;
  const std::string directory = folder.path() + "/state";
  const absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(directory, random);
  ASSERT_TRUE(store.ok()) << store.status();
  absl::StatusOr<State> state = (*store)->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  absl::Status fatal;
  Engine engine(**store, clock, *std::move(state),
                {.assignments = [](const auto&, const auto&, const auto&) {},
                 .value = [](const auto&, const auto&) {},
                 .events = [](const auto&) {},
                 .commit_seconds = [](double) {},
                 .no_room = [](const absl::Status& status) { ADD_FAILURE() << status; },
                 .room_again = [] { ADD_FAILURE(); },
                 .fatal = [&](const absl::Status& status) { fatal = status; }});
  engine.Start();
  EXPECT_TRUE(Submitted(engine, "kept").ok());
  std::filesystem::remove_all(directory);
  for (const char* const name : {"lost", "after-it"}) {
    const absl::Status status = Submitted(engine, name);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(directory + "/controller.db was deleted, moved or replaced"));
    EXPECT_THAT(status.message(), HasSubstr("another --state"));
  }
  engine.Stop();
  EXPECT_TRUE(absl::IsFailedPrecondition(fatal)) << "the process is to end: " << fatal;
}

}  // namespace
}  // namespace tandem::controller
