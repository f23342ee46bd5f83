// SPDX-License-Identifier: Apache-2.0
#include "platform/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/platform/forwarding_files.h"
#include "tests/platform/refused_calls.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::platform {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Each test in a folder of its own.
class FilesTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  Files& files_ = SystemFiles();
  const TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
};

TEST_F(FilesTest, WhatIsWrittenIsRead) {
  const std::string content("with a zero \0 inside", 20);
  ASSERT_TRUE(files_.Write(Path("a"), content).ok());
  EXPECT_EQ(*files_.Read(Path("a")), content);
  ASSERT_TRUE(files_.Write(Path("a"), "").ok());
  EXPECT_EQ(*files_.Read(Path("a")), "");
}

TEST_F(FilesTest, APartIsReadUpToTheEnd) {
  ASSERT_TRUE(files_.Write(Path("a"), "0123456789").ok());
  EXPECT_EQ(*files_.ReadRange(Path("a"), 0, 4), "0123");
  EXPECT_EQ(*files_.ReadRange(Path("a"), 7, 2), "78");
  EXPECT_EQ(*files_.ReadRange(Path("a"), 7, 100), "789");
  EXPECT_EQ(*files_.ReadRange(Path("a"), 10, 1), "");
  EXPECT_EQ(*files_.ReadRange(Path("a"), 11, 1), "");
  EXPECT_EQ(*files_.ReadRange(Path("a"), 3, 0), "");
  EXPECT_TRUE(absl::IsNotFound(files_.ReadRange(Path("none"), 0, 1).status()));
}

TEST_F(FilesTest, PartsAreWrittenUntilAnError) {
  std::vector<absl::StatusOr<std::string_view>> parts = {"0123", "4", "56789", ""};
  size_t next = 0;
  const auto take = [&] { return parts.at(next++); };
  ASSERT_TRUE(files_.WriteParts(Path("a"), take).ok());
  EXPECT_EQ(*files_.Read(Path("a")), "0123456789");
  parts[1] = absl::DataLossError("the disk has lost it");
  next = 0;
  EXPECT_EQ(files_.WriteParts(Path("a"), take), parts[1].status());
}

TEST_F(FilesTest, CreatedFileHasSizeAndZeros) {
  ASSERT_TRUE(files_.Write(Path("a"), "what was there before, and is longer").ok());
  const auto file = files_.Create(Path("a"), 8);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*files_.Read(Path("a")), std::string(8, '\0'));
  ASSERT_TRUE((*file)->Write(6, "zz").ok());
  ASSERT_TRUE((*file)->Write(1, "xy").ok());
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_EQ(*files_.Read(Path("a")), std::string("\0xy\0\0\0zz", 8));
  EXPECT_THAT(std::string(files_.Create(Path("no/folder"), 1).status().message()),
              HasSubstr("create " + Path("no/folder")));
}

TEST_F(FilesTest, FilesAreCreatedWithoutPreallocation) {
  EXPECT_IN_CHILD_WITHOUT(SYS_fallocate, EOPNOTSUPP, [&] {
    const auto file = files_.Create(Path("a"), 3);
    return file.ok() && (*file)->Write(1, "x").ok() && (*file)->Finish().ok();
  });
  EXPECT_EQ(*files_.Read(Path("a")), std::string("\0x\0", 3));
}

TEST_F(FilesTest, ReadTakesOnlyItsSize) {
  const std::string content((3 << 20) + 1, 'x');
  ASSERT_TRUE(files_.Write(Path("large"), content).ok());
  const absl::StatusOr<std::string> read = files_.Read(Path("large"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, content);
  EXPECT_LT(read->capacity(), content.size() + 4096);
}

TEST_F(FilesTest, ErrorsNameOperationAndPath) {
  const absl::Status read = files_.Read(Path("none")).status();
  EXPECT_TRUE(absl::IsNotFound(read));
  EXPECT_THAT(std::string(read.message()), HasSubstr("open " + Path("none")));
  EXPECT_THAT(std::string(files_.Write(Path("no/folder"), "x").message()),
              HasSubstr("create " + Path("no/folder")));
  EXPECT_THAT(std::string(files_.List(Path("none")).status().message()), HasSubstr("list " + Path("none")));
  EXPECT_THAT(std::string(files_.Rename(Path("x"), Path("y")).message()),
              HasSubstr(Path("x") + " to " + Path("y")));
  EXPECT_FALSE(files_.SyncFolder(Path("none")).ok());
}

TEST_F(FilesTest, PublishNeverReplaces) {
  ASSERT_TRUE(files_.Write(Path("a"), "first").ok());
  ASSERT_TRUE(files_.Write(Path("b"), "second").ok());
  ASSERT_TRUE(files_.Publish(Path("a"), Path("out")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(files_.Publish(Path("b"), Path("out"))));
  EXPECT_EQ(*files_.Read(Path("out")), "first");
  ASSERT_TRUE(files_.Rename(Path("b"), Path("out")).ok());
  EXPECT_EQ(*files_.Read(Path("out")), "second");
}

TEST_F(FilesTest, PublishNeverReplacesWithoutTheFlag) {
  for (const char* folder : {"first", "second"}) {
    ASSERT_TRUE(files_.CreateFolders(Path(folder)).ok());
    ASSERT_TRUE(files_.Write(Path(folder) + "/content", folder).ok());
  }
  ASSERT_TRUE(files_.Write(Path("a"), "first").ok());
  ASSERT_TRUE(files_.Write(Path("b"), "second").ok());
  // As a file system that does not know the flag.
  EXPECT_IN_CHILD_WITHOUT(SYS_renameat2, EINVAL, [&] {
    return files_.Publish(Path("first"), Path("folder")).ok() &&
           absl::IsAlreadyExists(files_.Publish(Path("second"), Path("folder"))) &&
           files_.Publish(Path("a"), Path("file")).ok() &&
           absl::IsAlreadyExists(files_.Publish(Path("b"), Path("file"))) &&
           absl::IsAlreadyExists(files_.Publish(Path("second"), Path("file"))) &&
           absl::IsNotFound(files_.Publish(Path("nothing"), Path("other")));
  });
  EXPECT_EQ(*files_.Read(Path("folder/content")), "first");
  EXPECT_EQ(*files_.Read(Path("second/content")), "second");
  EXPECT_EQ(*files_.Read(Path("file")), "first");
  EXPECT_TRUE(absl::IsNotFound(files_.Read(Path("a")).status()));
}

TEST_F(FilesTest, OverlargeFileIsRefusedUnread) {
  ASSERT_TRUE(files_.Write(Path("a"), "12345").ok());
  EXPECT_EQ(*ReadAtMost(files_, Path("a"), 5), "12345");
  std::filesystem::resize_file(Path("a"), uintmax_t{1} << 40);  // a sparse file that no memory holds
  const absl::Status status = ReadAtMost(files_, Path("a"), 5).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "read " + Path("a") + ": it has 1099511627776 bytes, more than such a file can have (5)");
  EXPECT_TRUE(absl::IsNotFound(ReadAtMost(files_, Path("none"), 5).status()));
}

TEST_F(FilesTest, FoldersAreMadeListedInOrderAndRemoved) {
  ASSERT_TRUE(files_.CreateFolders(Path("x/y/z")).ok());
  ASSERT_TRUE(files_.CreateFolders(Path("x/y/z")).ok());
  ASSERT_TRUE(files_.Write(Path("x/b"), "").ok());
  ASSERT_TRUE(files_.Write(Path("x/a"), "").ok());
  EXPECT_THAT(*files_.List(Path("x")), ElementsAre("a", "b", "y"));
  EXPECT_TRUE(files_.SyncFolder(Path("x")).ok());
  EXPECT_TRUE(files_.RemoveAll(Path("x")).ok());
  EXPECT_TRUE(files_.RemoveAll(Path("x")).ok());
  EXPECT_TRUE(absl::IsNotFound(files_.Read(Path("x/a")).status()));
}

// Without its name in the folder above, a power cut takes a folder with all that was fsynced in it.
TEST_F(FilesTest, AFolderThatWasMadeIsDurable) {
  EXPECT_IN_CHILD_WITHOUT(SYS_fsync, EIO, [&] {
    const bool there = files_.CreateFolders(folder_).ok();  // nothing to make durable
    const absl::Status made = files_.CreateFolders(Path("x/y"));
    return there && made.message() == "fsync folder " + Path("x") + ": Input/output error";
  });
}

// Some mounts of FUSE, SMB and CSI.
TEST_F(FilesTest, UnsyncableFolderIsNoError) {
  ASSERT_TRUE(files_.CreateFolder(Path("x")).ok());
  for (const int error : {EINVAL, EOPNOTSUPP, ENOSYS}) {
    EXPECT_IN_CHILD_WITHOUT(SYS_fsync, error, [&] {
      const bool folders = files_.SyncFolder(Path("x")).ok() && files_.CreateFolders(Path("y/z")).ok();
      return folders && !files_.Write(Path("a"), "a").ok();  // a file that is not durable is lost
    });
    std::filesystem::remove_all(Path("y"));
  }
}

TEST_F(FilesTest, ALinkToItselfIsWrongForGood) {
  std::filesystem::create_symlink("self", Path("self"));
  EXPECT_TRUE(absl::IsInvalidArgument(files_.Read(Path("self")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files_.Size(Path("self") + "/below").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files_.List(Path("self")).status()));
}

TEST_F(FilesTest, RelativeFoldersAreMade) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const absl::Status below = files_.CreateFolders("x");
  const absl::Status slash = files_.CreateFolders("a/b/");
  std::filesystem::current_path(before);
  EXPECT_TRUE(below.ok()) << below;
  EXPECT_TRUE(slash.ok()) << slash;
  EXPECT_THAT(*files_.List(folder_), ElementsAre("a", "x"));
  EXPECT_THAT(*files_.List(Path("a")), ElementsAre("b"));
  ASSERT_TRUE(files_.Write(Path("file"), "").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(files_.CreateFolders(Path("file/x"))));
}

TEST_F(FilesTest, CreateFolderNeedsItsParent) {
  EXPECT_TRUE(absl::IsNotFound(files_.CreateFolder(Path("x/y"))));
  EXPECT_THAT(*files_.List(folder_), ElementsAre());
  EXPECT_TRUE(files_.CreateFolder(Path("x")).ok());
  EXPECT_TRUE(files_.CreateFolder(Path("x")).ok());
  EXPECT_TRUE(files_.CreateFolder(Path("x/y")).ok());
  ASSERT_TRUE(files_.Write(Path("file"), "").ok());
  EXPECT_EQ(files_.CreateFolder(Path("file")).message(), "create folder " + Path("file") + ": File exists");
}

TEST_F(FilesTest, FolderIdSurvivesARename) {
  ASSERT_TRUE(files_.CreateFolder(Path("a")).ok());
  const absl::StatusOr<FolderId> id = files_.IdOfFolder(Path("a"));
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(files_.Rename(Path("a"), Path("b")).ok());
  EXPECT_EQ(*files_.IdOfFolder(Path("b")), *id);
  EXPECT_EQ(files_.IdOfFolder(Path("a")).status(),
            absl::NotFoundError("look at " + Path("a") + ": No such file or directory"));
  ASSERT_TRUE(files_.CreateFolder(Path("a")).ok());
  EXPECT_NE(*files_.IdOfFolder(Path("a")), *id);
  EXPECT_EQ(files_.IdOfFolder(Path("a"))->mount, id->mount);
  ASSERT_TRUE(files_.Write(Path("file"), "").ok());
  EXPECT_EQ(files_.IdOfFolder(Path("file")).status(),
            absl::InvalidArgumentError("look at " + Path("file") + ": Not a directory"));
}

TEST_F(FilesTest, ReplaceLeavesNothingBeside) {
  ASSERT_TRUE(ReplaceFile(files_, Path("a"), "old").ok());
  ASSERT_TRUE(ReplaceFile(files_, Path("a"), "new").ok());
  EXPECT_EQ(*files_.Read(Path("a")), "new");
  EXPECT_THAT(*files_.List(folder_), ElementsAre("a"));
}

TEST_F(FilesTest, TouchMovesTheModificationTimeOn) {
  ASSERT_TRUE(files_.Write(Path("a"), "x").ok());
  std::filesystem::last_write_time(Path("a"),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const absl::Time before = *files_.ModificationTime(Path("a"));
  ASSERT_TRUE(files_.Touch(Path("a")).ok());
  EXPECT_GE(*files_.ModificationTime(Path("a")), before + absl::Minutes(59));
  EXPECT_EQ(*files_.Read(Path("a")), "x");
  EXPECT_TRUE(absl::IsNotFound(files_.Touch(Path("b"))));
  EXPECT_TRUE(absl::IsNotFound(files_.ModificationTime(Path("b")).status()));
}

// A disk that is full after `room` bytes, as seen by Write.
class SmallDisk final : public ForwardingFiles {
 public:
  explicit SmallDisk(size_t room) : room_(room) {}
  absl::Status Write(const std::string& path, std::string_view content) override {
    if (const absl::Status status = ForwardingFiles::Write(path, content.substr(0, room_)); !status.ok()) {
      return status;
    }
    return content.size() <= room_ ? absl::OkStatus()
                                   : absl::ResourceExhaustedError("write " + path + ": full");
  }

 private:
  const size_t room_;
};

TEST_F(FilesTest, AFailedReplaceKeepsTheOldContent) {
  ASSERT_TRUE(ReplaceFile(files_, Path("a"), "old").ok());
  SmallDisk disk(2);
  EXPECT_TRUE(absl::IsResourceExhausted(ReplaceFile(disk, Path("a"), "newer")));
  EXPECT_EQ(*files_.Read(Path("a")), "old");
  EXPECT_THAT(*files_.List(folder_), ElementsAre("a"));
}

}  // namespace
}  // namespace tandem::platform
