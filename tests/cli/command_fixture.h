// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "cli/commands/command_line.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"
#include "nlohmann/json.hpp"
#include "platform/clock.h"
#include "tests/cli/fake_jobs_server.h"
#include "tests/cli/recorded_console.h"
#include "tests/cli/sample_job.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::cli {

// Runs command lines against a FakeJobsServer, in a folder of its own.
class CommandTest : public testing::Test {
 protected:
  // Moves on by `step` with every look.
  class TestClock : public platform::Clock {
   public:
    absl::Time Now() const override { return now_ += step; }
    absl::Duration step;

   private:
    mutable absl::Time now_ = Moment(134);
  };

  CommandTest() {
    server_ = std::make_unique<FakeJobsServer>(folder_);
    environment_.home = folder_;
    environment_.tandem_addr = server_->address();
  }

  // `tandem` with these words. Output is in console_, and is of this call only.
  int Tandem(const std::vector<std::string>& words) {
    console_.out.clear();
    console_.err.clear();
    std::vector<const char*> argv = {"tandem"};
    for (const std::string& word : words) {
      argv.push_back(word.c_str());
    }
    const Invocation invocation = ParseCommandLine(static_cast<int>(argv.size()), argv.data());
    if (!invocation.command) {
      if (invocation.exit_code != 0) {
        return Fail(console_, Failure(invocation.exit_code, invocation.text), "");
      }
      console_.out = invocation.text;
      return 0;
    }
    Context context{.console = console_,
                    .clock = clock_,
                    .environment = environment_,
                    .target = invocation.target,
                    .own_folder = folder_ + "/bin",
                    .zone = absl::UTCTimeZone()};
    return invocation.command(context);
  }

  // What the command prints with -o json.
  nlohmann::json Json(std::vector<std::string> words) {
    words.insert(words.end(), {"-o", "json"});
    EXPECT_EQ(Tandem(words), kOk) << console_.err;
    return nlohmann::json::parse(console_.out);
  }

  std::vector<std::string> Lines() const { return absl::StrSplit(console_.out, '\n', absl::SkipEmpty()); }

  // Of output of which each line is JSON.
  std::vector<nlohmann::json> JsonLines() const {
    std::vector<nlohmann::json> parsed;
    for (const std::string& line : Lines()) {
      parsed.push_back(nlohmann::json::parse(line));
    }
    return parsed;
  }

  // A file in the folder; returns its path.
  std::string File(const std::string& name, const std::string& text) { return temporary_.Write(name, text); }

  // The path of a job file that every check accepts.
  std::string GoodJobFile() {
    File("text.txt", std::string(1 << 16, 'x'));
    File("more.txt", std::string(1 << 16, 'y'));
    return File("job.yaml",
                "name: headers\nmodel: {preset: llama-tiny}\n"
                "data: {train: " +
                    folder_ +
                    "/*.txt, tokenizer: bytes}\n"
                    "training: {steps: 20, sequence_length: 64, micro_batch_size: 2, global_batch_size: 4}\n"
                    "parallelism: {ranks: 2}\n");
  }

  const platform::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::unique_ptr<FakeJobsServer> server_;
  Environment environment_;
  RecordedConsole console_;
  TestClock clock_;
};

}  // namespace tandem::cli
