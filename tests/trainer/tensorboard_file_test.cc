// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensorboard_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "checkpoint/owner.h"
#include "platform/files.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/temporary_folder.h"
#include "tests/trainer/report_text.h"
#include "trainer/failure.h"
#include "trainer/tensorboard.pb.h"

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;

class TensorBoardTest : public ::testing::Test {
 protected:
  // The events of every file, in the order in which TensorBoard reads them.
  std::vector<TensorBoardEvent> Events() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/tensorboard")) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<TensorBoardEvent> events;
    for (const std::string& path : paths) {
      std::stringstream text;
      text << std::ifstream(path).rdbuf();
      const std::string all = text.str();
      for (size_t at = 0; at < all.size();) {
        uint64_t size = 0;
        std::memcpy(&size, all.data() + at, sizeof(size));
        const std::string data = all.substr(at + 12, size);
        EXPECT_EQ(all.substr(at, size + 16), TensorBoardRecord(data));
        EXPECT_TRUE(events.emplace_back().ParseFromString(data));
        at += size + 16;
      }
    }
    return events;
  }

  const platform::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  platform::FakeClock clock_;
  platform::Files& files_ = platform::SystemFiles();
  const checkpoint::Owner self_{.job = "0123456789ab", .attempt = 2};
};

// Made by TensorFlow's own writer.
TEST_F(TensorBoardTest, RecordsAreThoseThatTensorBoardReads) {
  TensorBoardEvent version;
  version.set_wall_time(1);
  version.set_file_version("brain.Event:2");
  EXPECT_EQ(absl::BytesToHexString(TensorBoardRecord(version.SerializeAsString())),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  TensorBoardEvent event;
  event.set_wall_time(2);
  event.set_step(7);
  TensorBoardEvent::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag("loss");
  value.set_simple_value(1.5);
  EXPECT_EQ(absl::BytesToHexString(TensorBoardRecord(event.SerializeAsString())),
            "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f7373150000c03f1b484874");
}

TEST_F(TensorBoardTest, AStepIsOneEventWithItsScalars) {
  TensorBoardFile file(files_, clock_, folder_, self_, 0);
  file.Append(
      ReportOf("step: 3 loss: 2.5 grad_norm: 0.5 learning_rate: 0.25 seconds: 0.125 "
               "scalars { key: 'tokens_per_second' value: 1024 } "
               "scalars { key: 'validation_loss' value: 3 } scalars { key: 'validation_loss/en' value: 4 } "
               "scalars { key: 'model_flops_utilization' value: 0.5 }"));
  const std::vector<TensorBoardEvent> events = Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].session_log().status(), 1);
  EXPECT_EQ(events[2].step(), 3);
  std::vector<std::pair<std::string, float>> values;
  for (const auto& value : events[2].summary().value()) {
    values.emplace_back(value.tag(), value.simple_value());
  }
  using Value = std::pair<std::string, float>;
  EXPECT_THAT(values, ElementsAre(Value("loss_metrics/global_avg_loss", 2.5F), Value("grad_norm", 0.5F),
                                  Value("lr", 0.25F), Value("time_metrics/end_to_end(s)", 0.125F),
                                  Value("mfu(%)", 50.F), Value("throughput(tps)", 1024.F),
                                  Value("validation_metrics/global_avg_loss", 3.F),
                                  Value("validation_metrics/global_avg_loss/en", 4.F)));
}

TEST_F(TensorBoardTest, FirstValidationHasNothingElse) {
  TensorBoardFile file(files_, clock_, folder_, self_, 0);
  file.Append(ReportOf("step: 0 scalars { key: 'validation_loss' value: 3 }"));
  const std::vector<TensorBoardEvent> events = Events();
  ASSERT_EQ(events.size(), 3u);
  ASSERT_EQ(events[2].summary().value_size(), 1);
  EXPECT_EQ(events[2].summary().value(0).tag(), "validation_metrics/global_avg_loss");
}

TEST_F(TensorBoardTest, AResumedJobMarksWhichStepsComeAgain) {
  TensorBoardFile(files_, clock_, folder_, self_, 0).Append(ReportOf("step: 12"));
  clock_.Advance(absl::Seconds(5));
  TensorBoardFile(files_, clock_, folder_, self_, 11).Append(ReportOf("step: 11"));
  const std::vector<TensorBoardEvent> events = Events();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1].step(), 0);
  EXPECT_EQ(events[4].session_log().status(), 1);
  EXPECT_EQ(events[4].step(), 11);
}

TEST_F(TensorBoardTest, SlowClockMakesNoEarlierFile) {
  TensorBoardFile(files_, clock_, folder_, self_, 0).Append(ReportOf("step: 12"));
  clock_.Advance(-absl::Hours(1));
  TensorBoardFile(files_, clock_, folder_, self_, 11).Append(ReportOf("step: 11"));
  const std::vector<TensorBoardEvent> events = Events();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[4].step(), 11) << "the later start is read behind the earlier one";
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_GE(events[i].wall_time(), events[i - 1].wall_time());
  }
}

// TensorBoard goes on with the next name, and never returns to a file that it has read to the end.
TEST_F(TensorBoardTest, RemovedFolderGetsANewFile) {
  TensorBoardFile file(files_, clock_, folder_, self_, 0);
  file.Append(ReportOf("step: 1"));
  const std::string first = (*files_.List(folder_ + "/tensorboard"))[0];
  std::filesystem::remove_all(folder_ + "/tensorboard");
  clock_.Advance(absl::Seconds(5));
  file.Append(ReportOf("step: 2"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/tensorboard"))
      << "no .owner says that the folder is the job's";
  ASSERT_TRUE(checkpoint::PublishOwner(files_, folder_, self_).ok());
  file.Append(ReportOf("step: 3"));
  file.Append(ReportOf("step: 4"));
  const std::vector<TensorBoardEvent> events = Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 3);
  EXPECT_EQ(events[2].step(), 4);
  EXPECT_GT((*files_.List(folder_ + "/tensorboard"))[0], first);
}

TEST_F(TensorBoardTest, UnwritableFolderIsTheUsersError) {
  std::ofstream(folder_ + "/tensorboard") << "a file";
  EXPECT_THROW(TensorBoardFile(files_, clock_, folder_, self_, 0), UserError);
}

}  // namespace
}  // namespace tandem::trainer
