// SPDX-License-Identifier: Apache-2.0
#include "platform/filter_lines.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/platform/irregular_files.h"
#include "tests/platform/refused_calls.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::platform {
namespace {

constexpr size_t kMostLineBytes = 1000;

class FilterLinesTest : public testing::Test {
 protected:
  void Write(const std::string& content) const { std::ofstream(path_) << content; }
  std::string Content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static bool IsWanted(std::string_view line) { return line.empty() || line[0] != '-'; }

  const TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
  const std::string path_ = folder_ + "/file";
};

TEST_F(FilterLinesTest, KeepsOrderAndDropsATornLine) {
  Write("a\n-b\n\nc\n-\nd");
  ASSERT_TRUE(FilterLines(path_, kMostLineBytes, IsWanted).ok());
  EXPECT_EQ(Content(), "a\n\nc\n");
}

TEST_F(FilterLinesTest, LargeFileKeepsItsLines) {
  std::string content;
  std::string wanted;
  for (int i = 0; i < 100'000; ++i) {
    const std::string line(static_cast<size_t>(i % 97), static_cast<char>('a' + i % 26));
    content += line + "\n-" + line + "\n";
    wanted += line + "\n";
  }
  Write(content);
  ASSERT_TRUE(FilterLines(path_, kMostLineBytes, IsWanted).ok());
  EXPECT_TRUE(Content() == wanted);
}

TEST_F(FilterLinesTest, OverlongLineIsDropped) {
  Write("a\n" + std::string(3 << 20, 'x') + "\nb\n");
  std::filesystem::resize_file(path_, uintmax_t{1} << 30);  // a line of 1 GiB of zeros, in a sparse file
  EXPECT_TRUE(InChild([&] {  // of memory enough for the program, but not for the line
    const rlimit limit{.rlim_cur = size_t{512} << 20, .rlim_max = RLIM_INFINITY};
    return setrlimit(RLIMIT_AS, &limit) == 0 && FilterLines(path_, kMostLineBytes, IsWanted).ok();
  }));
  EXPECT_EQ(Content(), "a\nb\n");
}

TEST_F(FilterLinesTest, FullDiskLeavesTheFile) {
  const std::string content(10'000, '\n');
  Write(content);
  EXPECT_TRUE(InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 5'000, .rlim_max = 5'000};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           absl::IsResourceExhausted(FilterLines(path_, kMostLineBytes, IsWanted));
  }));
  EXPECT_EQ(Content(), content);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

TEST_F(FilterLinesTest, IrregularFileIsNamed) {
  for (const std::string kind : kIrregularKinds) {
    std::filesystem::remove_all(path_);
    PutIrregularFile(kind, path_);
    EXPECT_EQ(FilterLines(path_, kMostLineBytes, IsWanted),
              absl::InvalidArgumentError("open " + path_ + ": it is " + kind + ", not a regular file"));
  }
  std::filesystem::remove_all(path_);
  EXPECT_TRUE(absl::IsNotFound(FilterLines(path_, kMostLineBytes, IsWanted)));
}

}  // namespace
}  // namespace tandem::platform
