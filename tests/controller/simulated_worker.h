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

#include "proto/protocol.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::controller {

// A worker daemon as the controller sees it, over real gRPC. It dials, again after each lost connection;
// lists its attempts in Hello; and runs every assignment at once in simulated ranks.
class SimulatedWorker {
 public:
  struct Script {
    int slots = 1;
    int64_t steps = 256;   // steps that rank 0 reports; this many are committed at once
    bool hold = false;     // the ranks stay at READY until Release()
    int stopped_for = 0;   // seconds for which held ranks report that their processes are stopped
    bool mute = false;     // does not answer heartbeats, and does not dial again
    std::string log_line;  // the content of every log that it uploads
    int timelines = 0;     // how many timelines it uploads for a profile
    std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;  // null: no TLS
  };

  SimulatedWorker(std::string id, std::string address, Script script);
  ~SimulatedWorker();

  void Release();

  // How many attempts were started, by job.
  std::map<std::string, int> starts() const;
  std::string refused() const;
  // The number of attempts whose ranks have all exited and which the worker has not forgotten yet.
  size_t ended() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::ControllerMessage>;

  void Run();
  void Serve(v1::Workers::Stub& stub);
  void Converge(const v1::Assignments& assignments);
  void Advance(v1::AttemptStatus& status);
  void Send(v1::WorkerMessage message);
  // Sends the reports of an attempt. Returns true if they are acknowledged, or if there are none.
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
