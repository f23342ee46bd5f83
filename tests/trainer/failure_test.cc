// SPDX-License-Identifier: Apache-2.0
#include "trainer/failure.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <exception>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "data/text_options.h"
#include "device/device.h"
#include "link/exit_code.h"
#include "platform/regular_file.h"
#include "tandem/v1/state.pb.h"

namespace tandem::trainer {
namespace {

using link::ExitCode;

template <typename Error>
Failure Of(const Error& error) {
  return Describe(std::make_exception_ptr(error));
}

TEST(FailureTest, EveryKindHasItsClassAndExitCode) {
  EXPECT_EQ(Of(UserError("fix it")).exit_code, static_cast<int>(ExitCode::kUserError));
  EXPECT_EQ(Of(data::DataError("no files")).exit_code, static_cast<int>(ExitCode::kUserError));
  EXPECT_EQ(Of(comm::CommError("lost")).exit_code, static_cast<int>(ExitCode::kPeerLost));
  EXPECT_EQ(Of(comm::CommError("lost")).cause.class_(), v1::FAILURE_CLASS_PEER_LOST);
  EXPECT_EQ(Of(comm::AddressError("not ours")).cause.reason(), "DataAddressUnusable")
      << "no peer is to blame";
  EXPECT_EQ(Of(comm::AddressError("not ours")).cause.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(Of(device::OutOfMemory("full")).exit_code, static_cast<int>(ExitCode::kOutOfMemory));
  EXPECT_EQ(Of(NumericError("NaN", 7)).exit_code, static_cast<int>(ExitCode::kNumeric));
  EXPECT_EQ(Of(NumericError("NaN", 7)).cause.step(), 7);
  EXPECT_EQ(Of(NumericError("NaN", 7)).cause.reason(), "NonfiniteGradients");
  EXPECT_EQ(Of(NumericError("spike", 7, proto::ReasonCode("GradientSpike"))).cause.reason(), "GradientSpike");
  EXPECT_EQ(Of(std::bad_alloc()).cause.class_(), v1::FAILURE_CLASS_OUT_OF_MEMORY);
  EXPECT_EQ(Of(checkpoint::CheckpointError("disk")).exit_code, 1);
  EXPECT_EQ(Of(checkpoint::CheckpointError("disk")).cause.class_(), v1::FAILURE_CLASS_INFRASTRUCTURE);
  EXPECT_EQ(Of(std::runtime_error("a bug")).cause.reason(), "InternalError");
}

TEST(FailureTest, InstructionErrorKeepsItsKind) {
  const Failure failure = Of(InstructionError(std::make_exception_ptr(comm::CommError("rank 1 is\ngone")), 7,
                                              "unshard layers.0", "dp_cp_ag"));
  EXPECT_EQ(failure.cause.class_(), v1::FAILURE_CLASS_PEER_LOST);
  EXPECT_EQ(failure.cause.message(), "rank 1 is gone");
  EXPECT_EQ(failure.cause.step(), 7);
  EXPECT_EQ(failure.cause.instruction(), "unshard layers.0");
  EXPECT_EQ(failure.cause.group(), "dp_cp_ag");
}

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
