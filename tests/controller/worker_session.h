// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tandem/v1/workers.grpc.pb.h"
#include "tests/controller/job_client.h"

namespace tandem::controller {

using WorkerStream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::ControllerMessage>;

// The session of a worker whose messages the test writes. The constructor sends `hello` with seq 1 and reads
// the controller's welcome; without a welcome the test fails.
class WorkerSession {
 public:
  WorkerSession(const std::shared_ptr<grpc::Channel>& channel, const v1::Hello& hello)
      : stub_(v1::Workers::NewStub(channel)) {
    JobClient::SetDeadline(context_);
    stream_ = stub_->Session(&context_);
    v1::WorkerMessage message;
    message.set_seq(1);
    *message.mutable_hello() = hello;
    v1::ControllerMessage answer;
    EXPECT_TRUE(stream_->Write(message) && stream_->Read(&answer) && answer.has_welcome())
        << answer.DebugString();
  }
  WorkerStream* operator->() { return stream_.get(); }
  WorkerStream& operator*() { return *stream_; }
  v1::Workers::Stub& stub() { return *stub_; }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<v1::Workers::Stub> stub_;
  std::unique_ptr<WorkerStream> stream_;
};

// Waits until the controller assigns attempts to the worker. Expects one, and returns it; an empty id after a
// failure.
inline v1::AttemptId FirstAttempt(WorkerStream& session) {
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
