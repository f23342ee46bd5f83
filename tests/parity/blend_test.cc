// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using ::testing::HasSubstr;

// Three texts of their own letters: a, b, c.
class BlendTest : public ::testing::Test {
 protected:
  BlendTest() {
    for (const char letter : {'a', 'b', 'c'}) {
      std::string text;
      for (int i = 0; static_cast<int>(text.size()) < 400 * (letter - 'a' + 1); ++i) {
        absl::StrAppend(&text, std::string(1 + i % 7, letter), i * i, " ");
      }
      folder_.Write(std::string(1, letter), text);
    }
  }

  std::vector<JobOptions::Source> Weighted(double a, double b, double c) const {
    std::vector<JobOptions::Source> sources;
    for (const auto& [name, weight] :
         std::vector<std::pair<std::string, double>>{{"/a", a}, {"/b", b}, {"/c", c}}) {
      if (weight > 0) {
        sources.push_back({folder_.path() + name, weight});
      }
    }
    return sources;
  }

  TemporaryFolder folder_;
};

TEST_F(BlendTest, ItsNumbersDoNotDependOnTheRanks) {
  JobOptions options{.steps = 5, .validate_every_steps = 5};
  options.sources = Weighted(0.5, 0.3, 0.2);
  const JobRun whole = ExpectSameBitsOnRanks(options, {2, 3, 4});
  const auto& scalars = whole.steps.back().scalars();
  for (const char* name : {"epoch/a", "epoch/b", "epoch/c", "validation_loss/held-out/a",
                           "validation_loss/held-out/c", "validation_loss"}) {
    EXPECT_TRUE(scalars.contains(name)) << name;
  }
  // 60 of 120 samples are of the text a, whose trained part has 21 windows.
  EXPECT_NEAR(scalars.at("epoch/a"), 60.0 / 21, 0.2);
}

TEST_F(BlendTest, ItsTextDoesNotDependOnTheMicrobatch) {
  JobOptions options{.steps = 3, .fp64 = true};
  options.sources = Weighted(3, 2, 1);
  const auto run = [&](int64_t micro_batch_size) {
    options.micro_batch_size = micro_batch_size;
    options.microbatches_per_rank = static_cast<int>(12 / micro_batch_size);
    return RunJob(MakeJob(options));
  };
  const JobRun ones = run(1);
  for (const int64_t size : {2, 3, 6}) {
    const JobRun other = run(size);
    for (size_t i = 0; i < ones.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].loss(), ones.steps[i].loss(), 1e-10) << size;
    }
  }
}

TEST_F(BlendTest, AResumeGoesOnWhereEachTextWas) {
  JobOptions options = OnRanks(2, "");
  options.sources = Weighted(0.5, 0.3, 0.2);
  ExpectSameBitsAfter(4, options, {options});
}

TEST_F(BlendTest, OtherWeightsBeginASegmentInTheCheckpoint) {
  const TemporaryFolder folder;
  JobOptions options = OnRanks(2, folder.path());
  options.decays = false;
  options.steps = 3;
  options.sources = Weighted(0.5, 0.3, 0.2);
  RunJob(MakeJob(options));
  options.resume = "newest";
  options.steps = 5;
  options.sources = Weighted(1, 0, 1);
  const JobRun changed = RunJob(MakeJob(options));
  ASSERT_EQ(changed.warnings.size(), 1u);
  EXPECT_THAT(changed.warnings[0].message(), HasSubstr("b is no longer read, after "));
  const absl::StatusOr<checkpoint::Manifest> manifest =
      checkpoint::ReadManifest(Content(folder.path() + "/step-5/manifest.json"));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const std::vector<checkpoint::DataSegment>& data = manifest->info.data;
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(data[0].sources.size(), 3u);
  EXPECT_EQ(data[1].from_step, 3);
  EXPECT_EQ(data[1].from_sample, 3 * data[0].global_batch_size);
  ASSERT_EQ(data[1].sources.size(), 2u);
  EXPECT_EQ(data[1].sources[0].first, data[0].sources[0].taken);
  EXPECT_EQ(data[1].sources[1].first, data[0].sources[2].taken);
  EXPECT_EQ(data[1].sources[0].taken - data[1].sources[0].first,
            data[0].global_batch_size);  // half of two steps

  absl::StatusOr<checkpoint::Manifest> other = manifest;
  other->info.data[1].sources[0].taken += 1;
  std::ofstream(folder.path() + "/step-5/manifest.json") << checkpoint::WriteManifest(*other).text;
  options.steps = 6;
  const Refusal refusal = RefusalOf(MakeJob(options));
  EXPECT_EQ(refusal.reason, "DataPositionDiffers");
  EXPECT_THAT(refusal.message, HasSubstr("sequences of a, and this build"));
}

TEST_F(BlendTest, WithoutShufflingTheTextComesInOrder) {
  JobOptions options{.steps = 2};
  options.text = folder_.path() + "/a";
  const JobRun shuffled = RunJob(MakeJob(options));
  options.shuffle = false;
  const JobRun ordered = RunJob(MakeJob(options));
  EXPECT_NE(ordered.steps[0].loss(), shuffled.steps[0].loss());
  options.seed = 8;
  options.text = folder_.path() + "/a";
  EXPECT_NE(RunJob(MakeJob(options)).steps[0].loss(), ordered.steps[0].loss()) << "its weights are others";
}

}  // namespace
}  // namespace tandem::parity
