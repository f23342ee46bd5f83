// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tandem/v1/workers.grpc.pb.h"
#include "tests/controller/job_client.h"

namespace tandem::controller {

using WorkerSession = grpc::ClientReaderWriter<v1::WorkerMessage, v1::ControllerMessage>;

// The session of a worker whose messages the test writes itself: the first, of number 1, was `hello`, and the
// controller has welcomed it. Null after a failure. `context` outlives it.
inline std::unique_ptr<WorkerSession> Welcomed(v1::Workers::Stub& stub, grpc::ClientContext& context,
                                               const v1::Hello& hello) {
  JobClient::SetDeadline(context);
  std::unique_ptr<WorkerSession> session = stub.Session(&context);
  v1::WorkerMessage message;
  message.set_seq(1);
  *message.mutable_hello() = hello;
  v1::ControllerMessage answer;
  const bool welcomed = session->Write(message) && session->Read(&answer) && answer.has_welcome();
  EXPECT_TRUE(welcomed) << answer.DebugString();
  return welcomed ? std::move(session) : nullptr;
}

// The attempt, and no other one, that the controller first wants of the worker, whenever it does; an empty
// one after a failure.
inline v1::AttemptId FirstAttempt(WorkerSession& session) {
  v1::ControllerMessage message;
  while (session.Read(&message)) {
    if (!message.assignments().all().empty()) {
      EXPECT_EQ(message.assignments().all_size(), 1);
      return message.assignments().all(0).id();
    }
  }
  ADD_FAILURE() << "the session has ended";
  return {};
}

}  // namespace tandem::controller
