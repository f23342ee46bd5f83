// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/fake_controller.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "proto/protocol.h"

namespace tandem::worker {

void FakeController::StartServer() {
  {
    const std::lock_guard lock(mu_);
    ++term_;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

void FakeController::StopServer() {
  if (server_ == nullptr) {
    return;
  }
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

void FakeController::Want(std::vector<v1::Assignment> all, std::vector<AttemptKey> forget) {
  const std::lock_guard lock(mu_);
  wanted_ = std::move(all);
  forget_ = std::move(forget);
  if (stream_ == nullptr) {
    return;
  }
  v1::ControllerMessage message;
  *message.mutable_assignments() = Wanted();
  stream_->Write(message);
}

v1::Assignments FakeController::Wanted() const {
  v1::Assignments assignments;
  for (const v1::Assignment& assignment : wanted_) {
    *assignments.add_all() = assignment;
  }
  for (const AttemptKey& key : forget_) {
    *assignments.add_forget() = IdOf(key);
  }
  return assignments;
}

void FakeController::Send(const v1::ControllerMessage& message) {
  const std::lock_guard lock(mu_);
  if (stream_ != nullptr) {
    stream_->Write(message);
  }
}

void FakeController::Refuse() {
  const std::lock_guard lock(mu_);
  refuse_ = true;
}

FakeController::Seen FakeController::seen() const {
  const std::lock_guard lock(mu_);
  return seen_;
}

bool FakeController::WaitFor(const std::function<bool(const Seen&)>& what, absl::Duration limit) const {
  std::unique_lock lock(mu_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [&] { return what(seen_); });
}

grpc::Status FakeController::Session(grpc::ServerContext*, Stream* stream) {
  {
    const std::lock_guard lock(mu_);
    stream_ = stream;
    pending_.clear();
    seen_.values.clear();  // a controller that starts knows none
    ++seen_.sessions;
    changed_.notify_all();
  }
  v1::WorkerMessage message;
  while (stream->Read(&message)) {
    const std::lock_guard lock(mu_);
    Handle(message, *stream);
    changed_.notify_all();
  }
  const std::lock_guard lock(mu_);
  if (stream_ == stream) {
    stream_ = nullptr;
  }
  return grpc::Status::OK;
}

void FakeController::Handle(const v1::WorkerMessage& message, Stream& stream) {
  v1::ControllerMessage answer;
  answer.set_ack(message.seq());
  const auto learn = [&](const v1::KvSet& set) {
    seen_.values.emplace(set.key(), set.value());
    const auto waiting = pending_.find(set.key());
    if (waiting == pending_.end()) {
      return;
    }
    v1::ControllerMessage response;
    *response.mutable_value()->mutable_id() = waiting->second.id();
    response.mutable_value()->set_key(set.key());
    response.mutable_value()->set_value(set.value());
    stream.Write(response);
    pending_.erase(waiting);
  };
  switch (message.item_case()) {
    case v1::WorkerMessage::kHello: {
      seen_.hellos.push_back(message.hello());
      if (refuse_) {
        answer.mutable_refused()->set_reason("WorkerIdInUse");
        break;
      }
      v1::Welcome& welcome = *answer.mutable_welcome();
      welcome.set_term(term_);
      welcome.set_protocol(proto::kProtocol);
      welcome.mutable_orphan_timeout()->set_seconds(600);
      welcome.mutable_heartbeat_interval()->set_nanos(200'000'000);
      *welcome.mutable_assignments() = Wanted();
      for (const v1::AttemptStatus& status : message.hello().inventory().attempts()) {
        seen_.statuses[KeyOf(status.id())] = status;
      }
      break;
    }
    case v1::WorkerMessage::kStatus:
      seen_.statuses[KeyOf(message.status().id())] = message.status();
      break;
    case v1::WorkerMessage::kSet:
      learn(message.set());
      break;
    case v1::WorkerMessage::kGet: {
      ++seen_.gets;
      const auto known = seen_.values.find(message.get().key());
      if (known == seen_.values.end()) {
        pending_[message.get().key()] = message.get();
      } else {
        *answer.mutable_value()->mutable_id() = message.get().id();
        answer.mutable_value()->set_key(known->first);
        answer.mutable_value()->set_value(known->second);
      }
      break;
    }
    case v1::WorkerMessage::kCheckpoint:
      seen_.checkpoints.push_back(message.checkpoint());
      break;
    case v1::WorkerMessage::kHeartbeat:
      ++seen_.heartbeats;
      seen_.leaving = seen_.leaving || message.heartbeat().draining();
      break;
    case v1::WorkerMessage::ITEM_NOT_SET:
      break;
  }
  stream.Write(answer);
}

grpc::Status FakeController::Reports(grpc::ServerContext*,
                                     grpc::ServerReaderWriter<v1::ReportAck, v1::ReportBatch>* stream) {
  v1::ReportBatch batch;
  while (stream->Read(&batch)) {
    {
      const std::lock_guard lock(mu_);
      ++seen_.report_batches;
      if (batch.has_table()) {
        ++seen_.tables;
      }
      for (const v1::StepReport& report : batch.reports()) {
        seen_.reports[report.step()] = report;
      }
      changed_.notify_all();
    }
    v1::ReportAck ack;
    *ack.mutable_id() = batch.id();
    ack.set_seq(batch.seq());
    stream->Write(ack);
  }
  return grpc::Status::OK;
}

grpc::Status FakeController::Upload(grpc::ServerContext*, grpc::ServerReader<v1::UploadChunk>* reader,
                                    v1::UploadDone*) {
  v1::UploadChunk chunk;
  while (reader->Read(&chunk)) {
    const std::lock_guard lock(mu_);
    seen_.log += chunk.chunk().data();
    if (!chunk.chunk().error().empty()) {
      seen_.log_error = chunk.chunk().error();
    }
    changed_.notify_all();
  }
  const std::lock_guard lock(mu_);
  ++seen_.uploads_ended;
  changed_.notify_all();
  return grpc::Status::OK;
}

}  // namespace tandem::worker
