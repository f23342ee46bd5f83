// SPDX-License-Identifier: Apache-2.0
#include "link/trainer_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "link/exit_code.h"

namespace tandem::link {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<TrainerArgs> Parse(const std::vector<const char*>& argv) {
  return TrainerArgs::Parse(static_cast<int>(argv.size()), argv.data());
}

TEST(TrainerArgsTest, WhatIsWrittenIsParsed) {
  const TrainerArgs args{.control_fd = 7, .page_fd = 9, .parent_pid = 1234};
  const std::vector<std::string> argv = args.ToArgv("tandem-trainer");
  EXPECT_THAT(argv,
              ElementsAre("tandem-trainer", "--control-fd", "7", "--page-fd", "9", "--parent-pid", "1234"));
  std::vector<const char*> pointers;
  for (const std::string& arg : argv) {
    pointers.push_back(arg.c_str());
  }
  EXPECT_EQ(*Parse(pointers), args);
}

TEST(TrainerArgsTest, NamesTheFlagThatIsWrong) {
  const auto message = [](const std::vector<const char*>& argv) {
    return std::string(Parse(argv).status().message());
  };
  EXPECT_THAT(message({"t"}), HasSubstr("--control-fd is missing"));
  EXPECT_THAT(message({"t", "--control-fd", "1", "--page-fd", "2"}), HasSubstr("--parent-pid is missing"));
  EXPECT_THAT(message({"t", "--control-fd"}), HasSubstr("--control-fd needs a number"));
  EXPECT_THAT(message({"t", "--page-fd", "-1"}), HasSubstr("--page-fd needs a number"));
  EXPECT_THAT(message({"t", "--page-fd", "1x"}), HasSubstr("--page-fd needs a number"));
  EXPECT_THAT(message({"t", "--page-fd", "1", "--page-fd", "1"}), HasSubstr("twice"));
  EXPECT_THAT(message({"t", "--help"}), HasSubstr("unknown argument '--help'"));
}

TEST(ExitCodeTest, IsWhatServicesAndBatchScriptsRelyOn) {
  EXPECT_EQ(static_cast<int>(ExitCode::kDone), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::kPreempted), 75);
}

}  // namespace
}  // namespace tandem::link
