// SPDX-License-Identifier: Apache-2.0
#include "trainer/failure.h"

#include <gtest/gtest.h>

#include <new>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "data/corpus.h"
#include "device/device.h"

namespace tandem::trainer {
namespace {

using link::ExitCode;

template <typename Error>
Failure Of(const Error& error) {
  return Describe(std::make_exception_ptr(error));
}

TEST(FailureTest, EveryKindHasItsClassAndExitCode) {
  EXPECT_EQ(Of(UserError("fix it")).exit_code, ExitCode::kUserError);
  EXPECT_EQ(Of(data::DataError("no files")).exit_code, ExitCode::kUserError);
  EXPECT_EQ(Of(comm::CommError("lost")).exit_code, ExitCode::kPeerLost);
  EXPECT_EQ(Of(comm::CommError("lost")).kind, FailureKind::kPeerLost);
  EXPECT_EQ(Of(comm::AddressError("not ours")).reason, "DataAddressUnusable") << "no peer is to blame";
  EXPECT_EQ(Of(comm::AddressError("not ours")).kind, FailureKind::kInfrastructure);
  EXPECT_EQ(Of(device::OutOfMemory("full")).exit_code, ExitCode::kOutOfMemory);
  EXPECT_EQ(Of(NumericError("NaN", 7)).exit_code, ExitCode::kNumeric);
  EXPECT_EQ(Of(NumericError("NaN", 7)).step, 7);
  EXPECT_EQ(Of(std::bad_alloc()).kind, FailureKind::kOutOfMemory);
  EXPECT_FALSE(Of(checkpoint::CheckpointError("disk")).has_exit_code);
  EXPECT_EQ(Of(checkpoint::CheckpointError("disk")).kind, FailureKind::kInfrastructure);
  EXPECT_EQ(Of(std::runtime_error("a bug")).reason, "InternalError");
}

TEST(FailureTest, AnInstructionsErrorSaysWhereAndKeepsItsKind) {
  const Failure failure = Of(InstructionError(std::make_exception_ptr(comm::CommError("rank 1 is\ngone")), 7,
                                              "unshard layers.0", "dp_cp_ag"));
  EXPECT_EQ(failure.kind, FailureKind::kPeerLost);
  EXPECT_EQ(failure.message, "rank 1 is gone");
  EXPECT_EQ(failure.step, 7);
  EXPECT_EQ(failure.instruction, "unshard layers.0");
  EXPECT_EQ(failure.group, "dp_cp_ag");
}

}  // namespace
}  // namespace tandem::trainer
