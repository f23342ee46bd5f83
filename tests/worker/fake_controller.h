// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "tandem/v1/workers.grpc.pb.h"
#include "worker/state.h"

namespace tandem::worker {

// A real gRPC server in the controller's role for one worker: it answers Hello with the assignments that the
// test wants, keeps the rendezvous, acknowledges messages and records them. Can be stopped and started again
// on its socket, like a controller that dies.
class FakeController final : public v1::Workers::Service {
 public:
  // What the controller has received, for the test's expectations.
  struct Seen {
    int sessions = 0;  // opened so far
    std::vector<v1::Hello> hellos;
    std::map<AttemptKey, v1::AttemptStatus> statuses;  // the last status of each attempt
    std::map<std::string, std::string> values;
    std::vector<v1::CheckpointNotice> checkpoints;
    std::map<int64_t, v1::StepReport> reports;  // by step
    int64_t report_batches = 0;
    int64_t tables = 0;
    std::string log;        // data of all uploads
    std::string log_error;  // the last error of an upload
    int uploads_ended = 0;
    int heartbeats = 0;
    bool leaving = false;  // a heartbeat said that the worker drains
    int gets = 0;
  };

  // `socket` is the path of the unix socket.
  explicit FakeController(std::string socket) : socket_(std::move(socket)) { StartServer(); }
  ~FakeController() override { StopServer(); }

  std::string address() const { return "unix:" + socket_; }

  void StartServer();
  // Breaks all streams, like a kill of the controller.
  void StopServer();

  // Sets all assignments of the worker; they are sent now and with every Welcome.
  void Want(std::vector<v1::Assignment> all, std::vector<AttemptKey> forget = {});
  void Send(const v1::ControllerMessage& message);
  // Refuses every Hello from now on, without `final`.
  void Refuse();

  // A copy of what was received so far.
  Seen seen() const;
  // Waits until `what` returns true; returns false if it does not within `limit`.
  bool WaitFor(const std::function<bool(const Seen&)>& what, absl::Duration limit = absl::Seconds(60)) const;

  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ControllerMessage, v1::WorkerMessage>* stream) override;
  grpc::Status Reports(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ReportAck, v1::ReportBatch>* stream) override;
  grpc::Status Upload(grpc::ServerContext* context, grpc::ServerReader<v1::UploadChunk>* reader,
                      v1::UploadDone* done) override;

 private:
  using Stream = grpc::ServerReaderWriter<v1::ControllerMessage, v1::WorkerMessage>;

  void Handle(const v1::WorkerMessage& message, Stream& stream);
  v1::Assignments Wanted() const;

  const std::string socket_;
  std::unique_ptr<grpc::Server> server_;
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  // All below is guarded by mu_.
  Seen seen_;
  std::vector<v1::Assignment> wanted_;
  std::vector<AttemptKey> forget_;
  Stream* stream_ = nullptr;
  std::map<std::string, v1::KvGet> pending_;
  int64_t term_ = 0;
  bool refuse_ = false;
};

}  // namespace tandem::worker
