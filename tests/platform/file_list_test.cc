// SPDX-License-Identifier: Apache-2.0
#include "platform/file_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/platform/temporary_folder.h"

namespace tandem::platform {
namespace {

using ::testing::ElementsAre;

class FileListTest : public ::testing::Test {
 protected:
  FileListTest() {
    Write("b.txt");
    Write("a.md");
    Write("sub/c.txt");
    Write("sub/deep/d.txt");
  }

  void Write(const std::string& name) const { temporary_.Write(name, name); }

  // The listing below the root.
  std::vector<std::string> List(const std::string& pattern) const {
    const absl::StatusOr<std::vector<std::string>> files = ListFiles(root_ + pattern);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> names;
    for (const std::string& file : files.value_or(std::vector<std::string>())) {
      EXPECT_EQ(file.find("//"), std::string::npos) << file;
      names.push_back(file.substr(root_.size() + 1));
    }
    return names;
  }

  absl::Status Error(const std::string& pattern) const { return ListFiles(root_ + pattern).status(); }

  const TemporaryFolder temporary_;
  const std::string& root_ = temporary_.path();
};

TEST_F(FileListTest, FolderListsFilesSortedByBytes) {
  EXPECT_THAT(List(""), ElementsAre("a.md", "b.txt", "sub/c.txt", "sub/deep/d.txt"));
  EXPECT_THAT(List("/"), ElementsAre("a.md", "b.txt", "sub/c.txt", "sub/deep/d.txt"));
  Write("Z");
  Write("sub.txt");
  EXPECT_THAT(List(""), ElementsAre("Z", "a.md", "b.txt", "sub.txt", "sub/c.txt", "sub/deep/d.txt"));
}

TEST_F(FileListTest, AFileIsItself) { EXPECT_THAT(List("/sub/c.txt"), ElementsAre("sub/c.txt")); }

TEST_F(FileListTest, AGlobMatchesFilesAndFolders) {
  EXPECT_THAT(List("/*.txt"), ElementsAre("b.txt"));
  EXPECT_THAT(List("/[as]*"), ElementsAre("a.md", "sub/c.txt", "sub/deep/d.txt"));
  EXPECT_THAT(List("/s?b/*"), ElementsAre("sub/c.txt", "sub/deep/d.txt"));
}

TEST_F(FileListTest, WhatExistsWinsOverTheGlob) {
  Write("[x].txt");
  Write("x.txt");
  EXPECT_THAT(List("/[x].txt"), ElementsAre("[x].txt"));
}

TEST_F(FileListTest, OnlyLinksToFilesAreFollowed) {
  std::filesystem::create_symlink("b.txt", root_ + "/link");
  std::filesystem::create_directory_symlink(root_, root_ + "/sub/up");
  std::filesystem::create_symlink("nowhere", root_ + "/dangling");
  std::filesystem::create_symlink("itself", root_ + "/itself");
  EXPECT_THAT(List(""), ElementsAre("a.md", "b.txt", "link", "sub/c.txt", "sub/deep/d.txt"));
  EXPECT_EQ(Error("/d*"), absl::NotFoundError("what matches holds no file"));
}

TEST_F(FileListTest, HiddenFilesAndEditorCopiesAreSkipped) {
  Write(".ipynb_checkpoints/b.txt");
  Write(".ipynb_checkpoints/c.txt");
  Write("sub/.hidden");
  Write("b.txt~");
  int64_t skipped = -1;
  EXPECT_TRUE(ListFiles(root_, &skipped).ok());
  EXPECT_EQ(skipped, 3);
  EXPECT_THAT(List(""), ElementsAre("a.md", "b.txt", "sub/c.txt", "sub/deep/d.txt"));
  EXPECT_THAT(List("/b*"), ElementsAre("b.txt"));
  EXPECT_THAT(List("/b.txt~"), ElementsAre("b.txt~")) << "by its own name";
  EXPECT_THAT(List("/*~"), ElementsAre("b.txt~"));
  EXPECT_THAT(List("/.ipynb_checkpoints"),
              ElementsAre(".ipynb_checkpoints/b.txt", ".ipynb_checkpoints/c.txt"));
  std::filesystem::create_directories(root_ + "/empty");
  Write("empty/.keep");
  EXPECT_EQ(Error("/empty"),
            absl::NotFoundError("the folder holds no file but hidden ones, which are skipped"));
}

TEST_F(FileListTest, AFolderMayBeNamedThroughALink) {
  std::filesystem::create_directory_symlink(root_ + "/sub", root_ + "/other");
  EXPECT_THAT(List("/other"), ElementsAre("other/c.txt", "other/deep/d.txt"));
}

TEST_F(FileListTest, SpecialFilesAreLeftOutOrRefused) {
  ASSERT_EQ(mkfifo((root_ + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(List(""), ElementsAre("a.md", "b.txt", "sub/c.txt", "sub/deep/d.txt"));
  EXPECT_EQ(Error("/fifo"),
            absl::InvalidArgumentError(root_ + "/fifo is a FIFO, neither a file nor a folder"));
}

TEST_F(FileListTest, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(ListFiles("").status(), absl::InvalidArgumentError("the path is empty"));
  EXPECT_EQ(ListFiles(std::string("a\0b", 3)).status(),
            absl::InvalidArgumentError("the path holds a NUL character"));
  EXPECT_EQ(Error("/none"), absl::NotFoundError("no such file or folder"));
  EXPECT_EQ(Error("/a.md/below"), absl::NotFoundError("no such file or folder"));
  EXPECT_EQ(Error("/*.cc"), absl::NotFoundError("nothing matches"));
  EXPECT_EQ(Error("/**/c.txt"),
            absl::InvalidArgumentError("** is not supported; name the folder to take every file below it"));
  std::filesystem::create_directory(root_ + "/empty");
  EXPECT_EQ(Error("/empty"), absl::NotFoundError("the folder holds no file"));
  EXPECT_EQ(Error("/empt*"), absl::NotFoundError("what matches holds no file"));
}

TEST_F(FileListTest, FoldersThatCannotBeListedAreErrors) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "root lists everything";
  }
  ASSERT_EQ(chmod((root_ + "/sub").c_str(), 0), 0);
  EXPECT_EQ(Error("").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Error("/*/*.txt").code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod((root_ + "/sub").c_str(), 0700), 0);
}

}  // namespace
}  // namespace tandem::platform
