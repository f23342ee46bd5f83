// SPDX-License-Identifier: Apache-2.0
#include "data/content_sample.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "platform/regular_file.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kAll = kSampledBlocks * kSampledBlockBytes;

TEST(SampledBlocksTest, ASmallFileIsSampledAsAWhole) {
  EXPECT_THAT(SampledBlocks(0), IsEmpty());
  EXPECT_THAT(SampledBlocks(1), ElementsAre(Block{.begin = 0, .size = 1}));
  EXPECT_THAT(SampledBlocks(kAll), ElementsAre(Block{.begin = 0, .size = kAll}));
}

TEST(SampledBlocksTest, BlocksSpreadOverALargeFile) {
  for (const int64_t bytes : {kAll + 1, kAll + kSampledBlockBytes, int64_t{1'000'003}, int64_t{1} << 45}) {
    const std::vector<Block> blocks = SampledBlocks(bytes);
    ASSERT_EQ(blocks.size(), kSampledBlocks);
    EXPECT_EQ(blocks.front().begin, 0);
    EXPECT_EQ(blocks.back().begin + blocks.back().size, bytes);
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].size, kSampledBlockBytes);
      EXPECT_TRUE(i == 0 || blocks[i].begin >= blocks[i - 1].begin + kSampledBlockBytes) << bytes;
    }
  }
}

class ContentSampleTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Sample(const std::string& content, int64_t bytes) {
    const std::string path = folder_.Write("file", content);
    const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_RDONLY);
    return file.ok() ? ContentSample(file->get(), bytes) : file.status();
  }
  std::string Sample(const std::string& content) {
    const absl::StatusOr<std::string> sample = Sample(content, static_cast<int64_t>(content.size()));
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.value_or("");
  }

  platform::TemporaryFolder folder_;
};

TEST_F(ContentSampleTest, OnlySampledBytesCount) {
  const std::string text(1'000'003, 'a');
  const std::string first = Sample(text);
  EXPECT_EQ(Sample(text), first);
  const std::vector<Block> blocks = SampledBlocks(static_cast<int64_t>(text.size()));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto changed_at = [&](int64_t at) {
      std::string changed = text;
      changed[static_cast<size_t>(at)] = 'b';
      return Sample(changed);
    };
    EXPECT_NE(changed_at(blocks[i].begin), first) << i;
    EXPECT_NE(changed_at(blocks[i].begin + kSampledBlockBytes - 1), first) << i;
    if (i + 1 < blocks.size()) {
      EXPECT_EQ(changed_at(blocks[i].begin + kSampledBlockBytes), first) << i;
    }
  }
}

TEST_F(ContentSampleTest, ShortenedFileIsAnError) {
  EXPECT_EQ(Sample("abc", 4).status(), absl::OutOfRangeError("it has become shorter"));
}

}  // namespace
}  // namespace tandem::data
