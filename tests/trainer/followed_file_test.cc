// SPDX-License-Identifier: Apache-2.0
#include "trainer/followed_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/owner.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

// Runs it in a child, with `num_bytes` as the most that a file may have at its begin.
void RunWithFileLimit(rlim_t num_bytes, const std::function<void(rlimit&)>& run) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{.rlim_cur = num_bytes, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      _exit(2);
    }
    run(limit);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

void LiftLimit(rlimit& limit) {
  limit.rlim_cur = RLIM_INFINITY;
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
    _exit(2);
  }
}

class FollowedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory_);
    Own();
  }

  void Own() { ASSERT_TRUE(checkpoint::PublishOwner(files_, directory_, self_).ok()); }

  FollowedFile FileAt(const std::string& path, const std::string& header = "") {
    return FollowedFile(files_, directory_, self_, "words",
                        [path, header] { return FollowedFile::Place{.path = path, .header = header}; });
  }
  // At path_, which has "one " already.
  FollowedFile Begun(const std::string& header = "") {
    FollowedFile file = FileAt(path_, header);
    EXPECT_EQ(file.Open(), absl::OkStatus());
    file.Append("one ");
    return file;
  }

  const platform::TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path() + "/run";
  const std::string path_ = directory_ + "/words";
  platform::Files& files_ = platform::SystemFiles();
  const checkpoint::Owner self_{.job = "0123456789ab", .attempt = 2};
};

// As what lies beneath a file system that was unmounted, and as another job's.
TEST_F(FollowedFileTest, ForeignFolderGetsNoFile) {
  FollowedFile file = Begun();
  std::filesystem::rename(directory_, temporary_.path() + "/away");
  file.Append("two ");
  EXPECT_FALSE(std::filesystem::exists(directory_));
  std::filesystem::create_directories(directory_);
  for (const checkpoint::Owner& other :
       {checkpoint::Owner{.job = "other"}, checkpoint::Owner{.job = self_.job, .attempt = 1}}) {
    ASSERT_TRUE(checkpoint::PublishOwner(files_, directory_, other).ok());
    file.Append("three ");
    EXPECT_THAT(*files_.List(directory_), ElementsAre(".owner"));
    std::filesystem::remove(directory_ + "/.owner");
  }
  std::filesystem::remove(directory_);
  std::filesystem::rename(temporary_.path() + "/away", directory_);
  file.Append("four ");
  EXPECT_EQ(Content(path_), "one two three three four ");
}

TEST_F(FollowedFileTest, RemovedFileIsBegunAgain) {
  FollowedFile file = Begun();
  std::filesystem::rename(path_, directory_ + "/first");
  file.Append("two ");
  EXPECT_EQ(Content(path_), "two ");
  std::filesystem::rename(directory_ + "/first", path_);
  file.Append("three ");
  EXPECT_EQ(Content(path_), "one three ");
  std::filesystem::remove(path_);
  file.Append("four ");
  EXPECT_EQ(Content(path_), "four ");
}

TEST_F(FollowedFileTest, EveryFileBeginsWithItsHeader) {
  int64_t opened = 0;
  FollowedFile file(files_, directory_, self_, "words", [this, &opened] {
    ++opened;
    return FollowedFile::Place{.path = absl::StrCat(path_, opened), .header = absl::StrCat(opened, ": ")};
  });
  ASSERT_TRUE(file.Open().ok());
  file.Append("one ");
  file.Append("two ");
  EXPECT_EQ(Content(path_ + "1"), "1: one two ");
  std::filesystem::remove(path_ + "1");
  file.Append("three ");
  file.Append("four ");
  EXPECT_EQ(Content(path_ + "2"), "2: three four ");
  EXPECT_THAT(*files_.List(directory_), ElementsAre(".owner", "words2"));
}

TEST_F(FollowedFileTest, UnopenableFileIsLoggedOnce) {
  FollowedFile file = FileAt(path_);
  ASSERT_TRUE(file.Open().ok());
  std::filesystem::remove(path_);
  std::filesystem::create_directories(path_);
  testing::internal::CaptureStderr();
  file.Append("one ");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a folder, not a regular file"));
  testing::internal::CaptureStderr();
  file.Append("two ");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  std::filesystem::remove(path_);
  testing::internal::CaptureStderr();
  file.Append("three ");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("removed or replaced; they are now written"));
  EXPECT_EQ(Content(path_), "three ");
  std::filesystem::remove(path_);
  std::filesystem::create_directories(path_);
  testing::internal::CaptureStderr();
  file.Append("four ");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a folder, not a regular file"))
      << "the first failure of another file";
}

TEST_F(FollowedFileTest, AFileThatCannotBeOpenedIsNamed) {
  FollowedFile file = FileAt(directory_ + "/missing/words");
  const absl::Status opened = file.Open();
  EXPECT_TRUE(absl::IsNotFound(opened)) << opened;
  EXPECT_THAT(opened.message(), HasSubstr(directory_ + "/missing/words"));
}

TEST_F(FollowedFileTest, AFlushSaysWhatIsMissing) {
  FollowedFile file = Begun();
  EXPECT_EQ(file.Flush(), 0);
  RunWithFileLimit(6, [&](rlimit& limit) {
    file.Append("two ");
    file.Append("three ");
    const bool both_wait = file.Flush() == 2;
    LiftLimit(limit);
    if (!both_wait || file.Flush() != 0) {
      _exit(3);
    }
  });
  EXPECT_EQ(Content(path_), "one two three ");
}

TEST_F(FollowedFileTest, AnEndlesslyFullDiskLosesTheOldestTexts) {
  const std::string text(1 << 20, 'x');
  FollowedFile file = FileAt(path_);
  ASSERT_TRUE(file.Open().ok());
  RunWithFileLimit(6, [&](rlimit& limit) {
    for (int i = 0; i < 10; ++i) {
      file.Append(text);
    }
    LiftLimit(limit);
    if (file.Flush() != 2) {
      _exit(3);
    }
  });
  EXPECT_EQ(Content(path_).size(), FollowedFile::kMostWaiting);
}

TEST_F(FollowedFileTest, HeaderWaitsWithTheFirstText) {
  FollowedFile file = Begun("words: ");
  std::filesystem::remove(path_);
  RunWithFileLimit(3, [&](rlimit& limit) {
    file.Append("two ");
    LiftLimit(limit);
    file.Append("three ");
    file.Append("four ");
  });
  EXPECT_EQ(Content(path_), "words: two three four ");
}

TEST_F(FollowedFileTest, TornTextIsCutUnlessGone) {
  const std::pair<std::string, std::string> cases[] = {{"one tw", "one three four "}, {"", "three four "}};
  for (const auto& [before, after] : cases) {
    const std::string path = temporary_.Write("torn", before);
    const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_WRONLY | O_APPEND);
    ASSERT_TRUE(file.ok()) << file.status();
    std::optional<off_t> torn_at = 4;  // as a file system says that failed to cut it, and is whole again
    EXPECT_TRUE(AppendWhole(*file, "three ", torn_at).ok());
    EXPECT_TRUE(AppendWhole(*file, "four ", torn_at).ok());
    EXPECT_EQ(Content(path), after);
  }
}

// What comes behind a part of a record or of a line could not be read.
TEST_F(FollowedFileTest, NothingFollowsAnUncuttableTornText) {
  const platform::Descriptor uncut(memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_GE(uncut.get(), 0);
  ASSERT_EQ(fcntl(uncut.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const std::string path = absl::StrCat("/proc/", getpid(), "/fd/", uncut.get());
  std::filesystem::create_symlink(path, path_);
  FollowedFile file = Begun();
  RunWithFileLimit(6, [&](rlimit& limit) {
    file.Append("two ");
    LiftLimit(limit);
    file.Append("three ");
    std::filesystem::remove(path_);
    file.Append("four ");
  });
  EXPECT_EQ(Content(path), "one tw");
  EXPECT_EQ(Content(path_), "two three four ") << "another file has no such part";
}

}  // namespace
}  // namespace tandem::trainer
