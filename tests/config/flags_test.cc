// SPDX-License-Identifier: Apache-2.0
#include "config/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/platform/temporary_folder.h"

namespace tandem::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Flags of every kind that the daemons have.
class FlagsTest : public testing::Test {
 protected:
  // The exit code, or -1 where the daemon would go on. What is printed on standard error is in `printed_`.
  int Parse(const std::string& text, std::vector<std::string> more = {}) {
    std::ofstream(file()) << text;
    more.insert(more.begin(), {"daemon", "--config", file()});
    std::vector<const char*> argv;
    for (const std::string& word : more) {
      argv.push_back(word.c_str());
    }
    CLI::App app("A daemon.", "daemon");
    app.add_option("--state", state_)->required();
    app.add_option("--listen", listen_)->allow_extra_args(false);
    app.add_option("--slots", slots_)->check(CLI::Range(1, 4096));
    app.set_version_flag("--version", "1");
    testing::internal::CaptureStderr();
    const std::optional<int> code = ParseFlags(app, static_cast<int>(argv.size()), argv.data());
    printed_ = testing::internal::GetCapturedStderr();
    return code.value_or(-1);
  }
  std::string file() const { return folder_ + "/daemon.yaml"; }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  std::string state_;
  std::vector<std::string> listen_ = {"default"};
  int slots_ = 1;
  std::string printed_;
};

TEST_F(FlagsTest, AnEmptyValueIsNoAbsentFlag) {
  EXPECT_EQ(Parse("slots: 4\n", {"--state", "", "--listen", "a", "--listen", ""}), 2);
  EXPECT_THAT(printed_, HasSubstr("daemon: --state: its value is empty; give one, or omit it\n"));
  EXPECT_THAT(printed_, HasSubstr("daemon: --listen: its value is empty"));
  EXPECT_EQ(Parse("state: \"\"\nlisten: [a, \"\"]\n"), 2);
  EXPECT_THAT(printed_, HasSubstr("daemon.yaml:1:1: state: its value is empty; omit the line"));
  EXPECT_THAT(printed_, HasSubstr("daemon.yaml:2:1: listen: its value is empty"));
}

TEST_F(FlagsTest, FileMayGiveRequiredFlags) {
  EXPECT_EQ(Parse("state: /s\nlisten: [a, b]\nslots: 4\n"), -1) << printed_;
  EXPECT_EQ(state_, "/s");
  EXPECT_THAT(listen_, ElementsAre("a", "b"));
  EXPECT_EQ(slots_, 4);
}

TEST_F(FlagsTest, WhatTheFileLeavesOutHasItsDefault) {
  EXPECT_EQ(Parse("state: /s\n"), -1) << printed_;
  EXPECT_THAT(listen_, ElementsAre("default"));
  EXPECT_EQ(slots_, 1);
}

TEST_F(FlagsTest, TheCommandLineWins) {
  EXPECT_EQ(Parse("state: /s\nlisten: [a, b]\nslots: 4\n", {"--slots=7", "--listen", "c"}), -1) << printed_;
  EXPECT_EQ(state_, "/s");
  EXPECT_THAT(listen_, ElementsAre("c"));
  EXPECT_EQ(slots_, 7);
}

TEST_F(FlagsTest, AllProblemsHaveFileAndLine) {
  EXPECT_EQ(Parse("stat: /s\nslots: 0\nslots: 2\nstate: [a, b]\nconfig: other\n"), 2);
  const std::string at = "daemon: " + file();
  EXPECT_EQ(printed_, at + ":1:1: stat: there is no such flag; allowed: state, listen, slots\n" + at +
                          ":2:1: slots: value 0 not in range 1 to 4096\n" + at +
                          ":3:1: slots: it is given twice, first on line 2\n" + at +
                          ":4:1: state: a list is given, and this flag takes one value\n" + at +
                          ":5:1: config: there is no such flag; allowed: state, listen, slots\n");
}

TEST_F(FlagsTest, ReplacedValueIsCheckedToo) {
  EXPECT_EQ(Parse("state: /s\nslots: many\n", {"--slots", "2"}), 2);
  EXPECT_THAT(printed_, HasSubstr(":2:1: slots: "));
}

TEST_F(FlagsTest, MissingFileIsNamed) {
  EXPECT_EQ(Parse("state: /s\n", {"--config=" + folder_ + "/none"}), 1) << "it may come";
  EXPECT_THAT(printed_, HasSubstr("daemon: --config: open " + folder_ + "/none"));
  EXPECT_EQ(Parse("state: /s\n", {"--config=" + folder_}), 1);
  EXPECT_THAT(printed_, HasSubstr(folder_));
}

TEST_F(FlagsTest, EmptyPathIsNotNoFile) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--config", ""}, std::vector<std::string>{"--config="}}) {
    EXPECT_EQ(Parse("state: /s\n", words), 2);
    EXPECT_EQ(printed_, "daemon: --config: its path is empty; name a file, or omit the flag\n");
  }
}

TEST_F(FlagsTest, FlagErrorsAreOneLine) {
  EXPECT_EQ(Parse("slots: 2\n"), 2);
  EXPECT_EQ(printed_, "daemon: --state is required; see daemon --help\n");
  EXPECT_EQ(Parse("state: /s\n", {"--nothing"}), 2);
  EXPECT_THAT(printed_, HasSubstr("--nothing"));
}

TEST_F(FlagsTest, HelpComesBeforeTheFileIsLookedAt) {
  for (const char* help : {"--help", "-h"}) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(Parse("nonsense", {help}), 0);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("--config FILE"));
  }
}

}  // namespace
}  // namespace tandem::config
