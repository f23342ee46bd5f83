// SPDX-License-Identifier: Apache-2.0
#include "platform/regular_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "platform/files.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/refused_calls.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::platform {
namespace {

class RegularFileTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
};

TEST_F(RegularFileTest, EveryOperationRefusesFilesThatAreNotRegular) {
  Files& files = SystemFiles();
  for (const std::string kind : kIrregularKinds) {
    const std::string path = folder_ + "/" + kind.substr(2);
    PutIrregularFile(kind, path);
    const std::string end = " " + path + ": it is " + kind + ", not a regular file";
    EXPECT_EQ(files.Read(path).status(), absl::InvalidArgumentError("open" + end));
    EXPECT_EQ(files.Size(path).status(), absl::InvalidArgumentError("open" + end));
    EXPECT_EQ(files.ModificationTime(path).status(), absl::InvalidArgumentError("open" + end));
    EXPECT_EQ(files.Write(path, "x"), absl::InvalidArgumentError("create" + end));
    EXPECT_EQ(OpenRegularFile(path, O_RDWR | O_CREAT, 0600).status(),
              absl::InvalidArgumentError("open" + end));
  }
}

// What a path leads to may change between the look at it and its opening.
TEST_F(RegularFileTest, ReplacingFifoIsNotOpened) {
  const std::string path = folder_ + "/path";
  const std::string other = folder_ + "/other";
  std::ofstream(path) << "text";
  ASSERT_EQ(mkfifo(other.c_str(), 0600), 0);
  const auto swap = [&] {
    return renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
  };
  ASSERT_TRUE(swap()) << std::strerror(errno);
  std::atomic<bool> stop = false;
  std::atomic<int> swaps = 0;
  std::thread swapper([&] {
    while (!stop) {
      swaps += swap() ? 1 : 0;
    }
  });
  int opened = 0;
  int irregular = 0;
  while (swaps < 20'000 || opened == 0) {  // this thread may stand still while the other swaps
    const absl::StatusOr<Descriptor> file = OpenRegularFile(path, O_RDONLY);
    struct stat info {};
    if (file.ok() && fstat(file->get(), &info) == 0) {
      ++opened;
      irregular += S_ISREG(info.st_mode) ? 0 : 1;
    }
  }
  stop = true;
  swapper.join();
  EXPECT_EQ(irregular, 0) << "of " << opened;
  EXPECT_GT(opened, 0);
}

TEST_F(RegularFileTest, TemporaryFifoStopsNoReplacement) {
  Files& files = SystemFiles();
  ASSERT_TRUE(ReplaceFile(files, folder_ + "/a", "old").ok());
  PutIrregularFile("a FIFO", folder_ + "/a.tmp");
  EXPECT_TRUE(absl::IsInvalidArgument(ReplaceFile(files, folder_ + "/a", "new")));
  EXPECT_EQ(*files.Read(folder_ + "/a"), "old");
}

TEST_F(RegularFileTest, LinksAreWhatTheyLeadTo) {
  Files& files = SystemFiles();
  ASSERT_TRUE(files.Write(folder_ + "/a", "x").ok());
  std::filesystem::create_symlink("a", folder_ + "/link");
  EXPECT_EQ(*files.Read(folder_ + "/link"), "x");
  EXPECT_EQ(*files.Size(folder_ + "/link"), 1);
  std::filesystem::remove(folder_ + "/a");
  EXPECT_TRUE(absl::IsNotFound(files.Read(folder_ + "/link").status()));
}

TEST(FileErrorTest, ReservedCodesNeverComeFromTheKernel) {
  EXPECT_EQ(FileError(ENOENT, "open", "/a"), absl::NotFoundError("open /a: No such file or directory"));
  EXPECT_EQ(FileError(EEXIST, "publish", "/a").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(FileError(EACCES, "open", "/a").code(), absl::StatusCode::kPermissionDenied);
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    EXPECT_EQ(FileError(error, "write", "/a").code(), absl::StatusCode::kResourceExhausted) << error;
  }
  for (const int error : {EMFILE, ENFILE}) {
    EXPECT_EQ(FileError(error, "open", "/a").code(), absl::StatusCode::kOutOfRange) << error;
  }
  EXPECT_EQ(FileError(ESTALE, "read", "/a"), absl::UnavailableError("read /a: Stale file handle"));
  EXPECT_EQ(FileError(ENOTDIR, "open", "/a/b"), absl::InvalidArgumentError("open /a/b: Not a directory"));
  for (const int error :
       {ENXIO, ENODEV, EISDIR, EBUSY, ENOTEMPTY, EDEADLK, ETXTBSY, EIO, ENOMEM, EOVERFLOW}) {
    const absl::StatusCode code = FileError(error, "open", "/a").code();
    for (const absl::StatusCode reserved :
         {absl::StatusCode::kOk, absl::StatusCode::kNotFound, absl::StatusCode::kFailedPrecondition,
          absl::StatusCode::kResourceExhausted, absl::StatusCode::kOutOfRange, absl::StatusCode::kAborted}) {
      EXPECT_NE(code, reserved) << error;
    }
  }
}

TEST(FileErrorTest, TheRemedyFitsWhatIsMissing) {
  EXPECT_EQ(RemedyOf(FileError(ENOSPC, "write", "/a")), "make room on that file system");
  EXPECT_EQ(RemedyOf(FileError(EMFILE, "open", "/a")), "raise the limit of open files (ulimit -n)");
  EXPECT_EQ(RemedyOf(FileError(ENFILE, "open", "/a")), "raise the limit of open files (ulimit -n)");
  EXPECT_EQ(RemedyOf(FileError(EACCES, "open", "/a")),
            "give this user the right to it, or mount it writable where it is read-only");
  EXPECT_EQ(RemedyOf(FileError(EROFS, "open", "/a")), RemedyOf(FileError(EACCES, "open", "/a")));
  EXPECT_EQ(RemedyOf(FileError(EIO, "read", "/a")), "");
}

TEST_F(RegularFileTest, ErrorsEscapeThePath) {
  EXPECT_EQ(FileError(ENOENT, "open", "/\x1b[31m\n\x7f it's ü"),
            absl::NotFoundError("open /\\x1b[31m\\n\\x7f it's ü: No such file or directory"));
  // C1: terminals take U+009B for ESC [, and U+009D for the beginning of a title.
  EXPECT_EQ(FileError(ENOENT, "open", "/\u009b31m\u0080\x9b"),
            absl::NotFoundError("open /\\x9b31m\\x80\\x9b: No such file or directory"));
  const std::string folder = folder_ + "/a\nb";
  std::filesystem::create_directory(folder);
  EXPECT_EQ(OpenRegularFile(folder, O_RDONLY).status().message(),
            "open " + folder_ + "/a\\nb: it is a folder, not a regular file");
}

TEST_F(RegularFileTest, AWriteWithoutRoomIsReportedAsSuch) {
  const std::string path = folder_ + "/a";
  EXPECT_TRUE(InChild([&] {  // whose files may have 100 bytes
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           absl::IsResourceExhausted(SystemFiles().Write(path, std::string(200, 'x')));
  }));
}

}  // namespace
}  // namespace tandem::platform
