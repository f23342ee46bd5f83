// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/platform/irregular_files.h"
#include "tests/platform/temporary_folder.h"
#include "tests/trainer/report_text.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

class MetricsFileTest : public testing::Test {
 protected:
  std::string Content() const {
    std::ostringstream content;
    content << std::ifstream(folder_ + "/metrics.jsonl").rdbuf();
    return content.str();
  }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
};

TEST_F(MetricsFileTest, OneObjectAStepWithItsScalars) {
  {
    MetricsFile file(folder_, 0);
    file.Append(
        ReportOf("step: 1 loss: 0.1 grad_norm: 2 learning_rate: 1e-3 tokens: 8 seconds: 0.5 "
                 "scalars { key: 'validation_loss' value: 3 }"));
    file.Append(ReportOf("step: 2 loss: nan"));
  }
  std::istringstream lines(Content());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(
      nlohmann::json::parse(line),
      nlohmann::json::parse(R"({"step": 1, "loss": 0.1, "grad_norm": 2.0, "learning_rate": 0.001, "tokens": 8,
                                      "seconds": 0.5, "nonfinite": 0, "validation_loss": 3.0})"));
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_TRUE(nlohmann::json::parse(line).at("loss").is_null());
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(MetricsFileTest, ResumeCutsLaterStepsAndATornLine) {
  std::ofstream(folder_ + "/metrics.jsonl") << "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st";
  MetricsFile file(folder_, 2);
  EXPECT_EQ(Content(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(MetricsFileTest, WhatIsNoRegularFileIsTheUsersErrorAndNotWaitedFor) {
  for (const std::string kind : platform::kIrregularKinds) {
    const std::string path = folder_ + "/metrics.jsonl";
    std::filesystem::remove_all(path);
    platform::PutIrregularFile(kind, path);
    try {
      MetricsFile file(folder_, 0);
      FAIL() << "it was opened";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), "checkpoint.directory: cannot keep metrics there: open " + path + ": it is " +
                                  kind + ", not a regular file; correct that, or use another folder");
    }
  }
}

TEST_F(MetricsFileTest, AFullDiskLosesLinesAndTearsNone) {
  MetricsFile file(folder_, 0);
  file.Append(ReportOf("step: 1"));
  const std::string first = Content();
  const pid_t child = fork();
  if (child == 0) {  // whose files have room for a line and a half, at first
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{.rlim_cur = first.size() * 3 / 2, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      _exit(2);
    }
    file.Append(ReportOf("step: 2"));
    limit.rlim_cur = RLIM_INFINITY;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      _exit(2);
    }
    file.Append(ReportOf("step: 3"));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::string third = first;
  third.replace(third.find("\"step\":1"), 8, "\"step\":3");
  EXPECT_EQ(Content(), first + third);
}

TEST_F(MetricsFileTest, AFreshStartCutsEverything) {
  std::ofstream(folder_ + "/metrics.jsonl") << "{\"step\":0}\n{\"step\":1}\n";
  MetricsFile file(folder_, 0);
  EXPECT_EQ(Content(), "") << "the validation before step 1 comes again too";
}

}  // namespace
}  // namespace tandem::trainer
