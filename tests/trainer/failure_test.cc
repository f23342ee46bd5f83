// SPDX-License-Identifier: Apache-2.0
#include "trainer/failure.h"

#include <gtest/gtest.h>

#include <new>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "data/token_source.h"
#include "device/device.h"
#include "link/exit_code.h"

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
  EXPECT_EQ(Of(NumericError("spike", 7, proto::reason::kGradientSpike)).cause.reason(), "GradientSpike");
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

}  // namespace
}  // namespace tandem::trainer
