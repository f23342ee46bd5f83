// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "proto/attempt_key.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::controller {

// A worker daemon as the controller sees one, over real gRPC: dials, and dials again when the connection is
// lost; lists in Hello what it has; runs what it is assigned, all at once, in pretended ranks.
class SimulatedWorker {
 public:
  struct Script {
    int slots = 1;
    int64_t steps = 256;   // reported by rank 0; that many are committed at once
    bool hold = false;     // the ranks stay at READY until Release()
    int stopped_for = 0;   // seconds for which they have been stopped then
    bool mute = false;     // heartbeats are not answered, and a lost connection stays lost
    std::string log_line;  // what the upload of a log answers
    int timelines = 0;     // how many that of a profile answers
    std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;  // null: no TLS
  };

  SimulatedWorker(std::string id, std::string address, Script script);
  ~SimulatedWorker();

  void Release();

  // How often an attempt of a job was begun, by job.
  std::map<std::string, int> starts() const;
  std::string refused() const;
  // The attempts whose ranks have all exited, and which are not forgotten yet.
  size_t ended() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::ControllerMessage>;

  void Run();
  void Serve(v1::Workers::Stub& stub);
  void Converge(const v1::Assignments& assignments);
  void Advance(v1::AttemptStatus& status);
  void Send(v1::WorkerMessage message);
  // Whether they are acknowledged, or this worker has none.
  bool SendReports(const v1::AttemptStatus& status);
  void Upload(const v1::UploadRequest& request);

  const std::string id_;
  const std::string address_;
  const Script script_;
  mutable std::mutex mu_;
  bool stopping_ = false;
  bool released_ = false;
  std::string refused_;
  std::map<std::string, int> starts_;
  std::map<proto::AttemptKey, v1::AttemptStatus> attempts_;
  std::map<proto::AttemptKey, bool> reported_;
  std::unique_ptr<grpc::ClientContext> context_;
  Stream* stream_ = nullptr;
  v1::Workers::Stub* stub_ = nullptr;
  uint64_t seq_ = 0;
  int64_t term_ = 0;
  std::thread thread_;
};

}  // namespace tandem::controller
