// SPDX-License-Identifier: Apache-2.0
#include "platform/filter_lines.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/platform/irregular_files.h"
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
  const pid_t child = fork();
  if (child == 0) {  // of memory enough for the program, but not for the line
    Write("a\n" + std::string(3 << 20, 'x') + "\nb\n");
    if (truncate(path_.c_str(), off_t{1} << 30) != 0) {
      _exit(2);  // a line of 1 GiB of zeros, in a sparse file
    }
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = size_t{512} << 20;
    if (setrlimit(RLIMIT_AS, &limit) != 0) {
      _exit(3);
    }
    _exit(FilterLines(path_, kMostLineBytes, IsWanted).ok() ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(Content(), "a\nb\n");
}

TEST_F(FilterLinesTest, FullDiskLeavesTheFile) {
  const std::string content(10'000, '\n');
  Write(content);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 5'000, .rlim_max = 5'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      _exit(2);
    }
    _exit(absl::IsResourceExhausted(FilterLines(path_, kMostLineBytes, IsWanted)) ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
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
