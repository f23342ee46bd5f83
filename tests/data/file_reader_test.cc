// SPDX-License-Identifier: Apache-2.0
#include "data/file_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/text.h"
#include "tests/data/data_error.h"
#include "tests/data/prepared_folder.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMostOpen = 256;  // what a reader keeps open unless it is told otherwise

// How many descriptors of this process are of files in the folder.
size_t OpenFilesIn(const platform::TemporaryFolder& folder) {
  size_t open = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const std::string path = std::filesystem::read_symlink(entry.path(), closed_meanwhile);
    open += path.starts_with(folder.path() + "/") ? 1 : 0;
  }
  return open;
}

class FileReaderTest : public testing::Test {
 protected:
  std::string WriteNumbered(int number) const {
    return folder_.Write(absl::StrCat("f", number), absl::StrCat("file ", 100 + number));
  }

  static std::string NumberIn(const FileReader& reader, int file) {
    std::string digits(3, '\0');
    reader.Read(file, 5, 3, digits.data());
    return digits;
  }

  platform::TemporaryFolder folder_;
  platform::FakeClock clock_;
};

TEST_F(FileReaderTest, MoreFilesThanDescriptorsAreRead) {
  FileReader reader(clock_, /*most_open=*/2);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(reader.Add("data.train", WriteNumbered(i)), i);
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(NumberIn(reader, i), std::to_string(100 + i));
      EXPECT_EQ(OpenFilesIn(folder_), 2);
    }
  }
  folder_.Write("f0", "longer than before");
  EXPECT_THAT(ErrorOf([&] { NumberIn(reader, 0); }), HasSubstr("f0 was changed")) << "it is opened again";
}

TEST_F(FileReaderTest, AFileIsOpenedOnceUntilOthersAreUsed) {
  FileReader reader(clock_, /*most_open=*/2);
  const std::string path = WriteNumbered(0);
  reader.Add("data.train", path);
  std::filesystem::remove(path);
  EXPECT_EQ(reader.ContentSample(0).size(), 32);
  EXPECT_EQ(NumberIn(reader, 0), "100");
  clock_.Advance(FileReader::kCheckEvery);
  EXPECT_EQ(NumberIn(reader, 0), "100");
  reader.Add("data.validation", WriteNumbered(1));
  EXPECT_EQ(NumberIn(reader, 0), "100");
  reader.Add("data.validation", WriteNumbered(2));  // instead of the first
  EXPECT_EQ(NumberIn(reader, 0), "100") << "it was used later than the second";
  EXPECT_EQ(NumberIn(reader, 1), "101");
  EXPECT_EQ(NumberIn(reader, 2), "102");
  EXPECT_THAT(ErrorOf([&] { NumberIn(reader, 0); }), HasSubstr("data.train: cannot open " + path));
}

TEST_F(FileReaderTest, AChangedFileStaysRefused) {
  FileReader reader(clock_);
  const std::string path = WriteNumbered(0);
  reader.Add("data.train", path);
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(NumberIn(reader, 0), "100") << "it is checked once a minute";
  clock_.Advance(FileReader::kCheckEvery);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ErrorOf([&] { NumberIn(reader, 0); }),
              "data.train: " + path +
                  " was changed while the job reads it: it had 8 bytes and now has 100; train on a copy that "
                  "stays as it is");
  }
}

TEST_F(FileReaderTest, ThreadsReadMoreFilesThanDescriptors) {
  constexpr int kFiles = 20;
  FileReader reader(platform::SteadyClock(), /*most_open=*/3);
  for (int i = 0; i < kFiles; ++i) {
    reader.Add("data.train", WriteNumbered(i));
  }
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 500; ++i) {
          const int file = (i * (thread % 3 + 1)) % kFiles;  // some threads want the same one
          wrong += NumberIn(reader, file) == std::to_string(100 + file) ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(OpenFilesIn(folder_), 3);
}

TEST_F(FileReaderTest, TextsOfBytesShareTheDescriptors) {
  TextOptions options;
  for (const char* const text : {"a", "b", "c"}) {
    for (size_t i = 0; i < kMostOpen / 2; ++i) {
      folder_.Write(absl::StrCat(text, "/f", i), absl::StrCat(text, i));
    }
    options.train.push_back({absl::StrCat("data.sources.", text), folder_.path() + "/" + text});
  }
  options.validation = {{"data.validation", folder_.Write("held", "nothing else")}};
  const SplitText text = OpenText(options, clock_);
  EXPECT_EQ(OpenFilesIn(folder_), kMostOpen);
}

TEST_F(FileReaderTest, TextsOfTokensShareTheDescriptors) {
  TextOptions options;
  for (int64_t text = 0; text < 3; ++text) {
    std::vector<std::vector<Document>> shards;
    for (size_t i = 0; i < kMostOpen / 4; ++i) {  // of two files each
      shards.push_back({{text, static_cast<int64_t>(i), 3}});
    }
    options.train.push_back(
        {absl::StrCat("data.sources.", text), WriteDataset(folder_, absl::StrCat("set-", text), shards)});
  }
  const SplitText text = OpenText(options, clock_);
  EXPECT_EQ(OpenFilesIn(folder_), kMostOpen);
}

}  // namespace
}  // namespace tandem::data
