// SPDX-License-Identifier: Apache-2.0
#include "trainer/directory_error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <exception>
#include <string>

#include "absl/status/status.h"
#include "platform/regular_file.h"
#include "tandem/v1/state.pb.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

v1::Cause CauseOf(int error) {
  try {
    ThrowIfUnwritable("cannot keep notes there", platform::FileError(error, "write", "/run/notes"));
  } catch (const std::exception&) {
    return Describe(std::current_exception()).cause;
  }
  ADD_FAILURE() << "nothing was thrown of " << error;
  return {};
}

TEST(DirectoryErrorTest, WhatIsNoErrorThrowsNothing) {
  EXPECT_NO_THROW(ThrowIfUnwritable("cannot keep notes there", absl::OkStatus()));
}

TEST(DirectoryErrorTest, FullDiskIsNotTheJobsFault) {
  for (const int error : {ENOSPC, EDQUOT, EIO, ESTALE, ETIMEDOUT, EMFILE, ENFILE}) {
    EXPECT_EQ(CauseOf(error).class_(), v1::FAILURE_CLASS_INFRASTRUCTURE) << error;
  }
  EXPECT_EQ(CauseOf(ENOSPC).message(),
            "checkpoint.directory: cannot keep notes there: write /run/notes: No space left on device; make "
            "room on that file system, or use another folder");
  EXPECT_EQ(CauseOf(EIO).message(),
            "checkpoint.directory: cannot keep notes there: write /run/notes: Input/output error; that file "
            "system fails: start again when it works, or use another folder");
}

TEST(DirectoryErrorTest, TooManyOpenFilesHaveTheirOwnRemedy) {
  EXPECT_EQ(CauseOf(EMFILE).message(),
            "checkpoint.directory: cannot keep notes there: write /run/notes: Too many open files; raise the "
            "limit of open files (ulimit -n)");
}

TEST(DirectoryErrorTest, CorrectableErrorIsTheUsers) {
  for (const int error : {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ENAMETOOLONG}) {
    EXPECT_EQ(CauseOf(error).class_(), v1::FAILURE_CLASS_USER) << error;
  }
  EXPECT_EQ(
      CauseOf(EACCES).message(),
      "checkpoint.directory: cannot keep notes there: write /run/notes: Permission denied; correct that, "
      "or use another folder");
}

}  // namespace
}  // namespace tandem::trainer
