// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/owner.h"
#include "nlohmann/json.hpp"
#include "platform/files.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/temporary_folder.h"
#include "tests/trainer/report_text.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class MetricsFileTest : public testing::Test {
 protected:
  std::string Content() const {
    std::ostringstream content;
    content << std::ifstream(folder_ + "/metrics.jsonl").rdbuf();
    return content.str();
  }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  platform::Files& files_ = platform::SystemFiles();
  const checkpoint::Owner self_{.job = "0123456789ab", .attempt = 2};
};

TEST_F(MetricsFileTest, OneObjectAStepWithItsScalars) {
  {
    MetricsFile file(files_, folder_, self_, 0);
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

TEST_F(MetricsFileTest, FirstValidationHasNothingElse) {
  MetricsFile file(files_, folder_, self_, 0);
  file.Append(ReportOf("step: 0 scalars { key: 'validation_loss' value: 3 }"));
  EXPECT_EQ(Content(), "{\"step\":0,\"validation_loss\":3.0}\n");
}

TEST_F(MetricsFileTest, ResumeCutsLaterStepsAndATornLine) {
  std::ofstream(folder_ + "/metrics.jsonl") << "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st";
  MetricsFile file(files_, folder_, self_, 3);
  EXPECT_EQ(Content(), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(MetricsFileTest, IrregularFileIsTheUsersError) {
  for (const std::string kind : platform::kIrregularKinds) {
    const std::string path = folder_ + "/metrics.jsonl";
    std::filesystem::remove_all(path);
    platform::PutIrregularFile(kind, path);
    try {
      MetricsFile file(files_, folder_, self_, 0);
      FAIL() << "it was opened";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), "checkpoint.directory: cannot keep metrics there: open " + path + ": it is " +
                                  kind + ", not a regular file; correct that, or use another folder");
    }
  }
}

TEST_F(MetricsFileTest, AFreshStartCutsEverything) {
  std::ofstream(folder_ + "/metrics.jsonl") << "{\"step\":0}\n{\"step\":1}\n";
  MetricsFile file(files_, folder_, self_, 0);
  EXPECT_EQ(Content(), "") << "the validation before step 1 comes again too";
}

TEST_F(MetricsFileTest, ResumedJobKnowsTheNewestLosses) {
  {
    std::ofstream file(folder_ + "/metrics.jsonl");
    file << R"({"step": 0, "validation_loss": 9})" << '\n'
         << R"({"step": 1, "loss": null, "grad_norm": 1})" << '\n';
    file << R"({"step": 2, "loss": 9, "grad_norm": null})" << '\n';
    for (int step = 3; step <= 140; ++step) {
      file << R"({"step": )" << step << R"(, "grad_norm": 1, "loss": )" << step << ".5}\n";
    }
  }
  std::vector<double> expected(128);
  std::iota(expected.begin(), expected.end(), 135 - 128 + 0.5);
  EXPECT_EQ(MetricsFile(files_, folder_, self_, 135).losses_before(), expected);
  EXPECT_EQ(MetricsFile(files_, folder_, self_, 5).losses_before(), (std::vector<double>{3.5, 4.5}));
  EXPECT_TRUE(MetricsFile(files_, folder_, self_, 0).losses_before().empty());
}

TEST_F(MetricsFileTest, LinesFollowARemadeDirectory) {
  MetricsFile file(files_, folder_, self_, 0);
  file.Append(ReportOf("step: 1"));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  ASSERT_TRUE(checkpoint::PublishOwner(files_, folder_, self_).ok());
  file.Append(ReportOf("step: 2"));
  EXPECT_THAT(Content(), AllOf(HasSubstr("\"step\":2"), Not(HasSubstr("\"step\":1"))));
}

}  // namespace
}  // namespace tandem::trainer
