// SPDX-License-Identifier: Apache-2.0
#include "worker/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "tests/platform/fake_clock.h"
#include "tests/platform/no_threads.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(LauncherTest, WhereNoThreadIsLeftTheRankFailsAndTheWorkerLives) {
  const platform::FakeClock clock;
  ReportQueue reports(clock, {});
  std::vector<Input> inputs;
  Launcher launcher(
      "/none", std::nullopt, reports, [](const RankKey&, const ProcessId&) {},
      [](const RankKey&, const v1::ProfiledStep&) {},
      [&](Input input) { inputs.push_back(std::move(input)); });
  {
    const platform::NoThreads none;
    launcher.Spawn({{.job = "j", .attempt = 1}, 0}, v1::Start(), "/none/log");
  }
  ASSERT_THAT(inputs, SizeIs(1));
  EXPECT_THAT(std::get<SpawnFailed>(inputs[0]).why, HasSubstr("start a thread: Resource temporarily unav"));
  EXPECT_THAT(std::get<SpawnFailed>(inputs[0]).why, HasSubstr("raise the limit of processes"));
}

}  // namespace
}  // namespace tandem::worker
