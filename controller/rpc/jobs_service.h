// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "controller/engine.h"
#include "controller/metrics/progress_board.h"
#include "controller/rpc/access.h"
#include "controller/rpc/sessions.h"
#include "controller/rpc/sign_ins.h"
#include "controller/rpc/submit_planner.h"
#include "controller/rpc/upload_relay.h"
#include "controller/rpc/watch_stream.h"
#include "controller/store/history.h"
#include "controller/store/store.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::controller {

using CallContext = grpc::CallbackServerContext;
using UnaryCall = grpc::ServerUnaryReactor;

// The users' RPCs. A handler validates its request, and posts it to the engine or reads store and history.
// None waits for another client.
class JobsService final : public v1::Jobs::CallbackService {
 public:
  // The parts of the controller that the service calls. They must outlive it.
  struct Parts {
    Engine& engine;
    Store& store;
    History& history;
    Sessions& sessions;
    Watches& watches;
    UploadRelay& uploads;
    const ProgressBoard& progress;
    const platform::Clock& clock;
    platform::Random& random;
    Access& access;
    SignIns& sign_ins;
  };
  explicit JobsService(const Parts& parts);

  // Refuses the submitted jobs that wait to be planned. Call it before the server is shut down.
  void Close() { planner_.Close(); }

  UnaryCall* Submit(CallContext* context, const v1::SubmitRequest* request, v1::Job* response) override;
  UnaryCall* Validate(CallContext* context, const v1::SubmitRequest* request,
                      v1::ValidateResponse* response) override;
  UnaryCall* GetJob(CallContext* context, const v1::GetJobRequest* request, v1::Job* response) override;
  UnaryCall* ListJobs(CallContext* context, const v1::ListJobsRequest* request,
                      v1::ListJobsResponse* response) override;
  UnaryCall* ListWorkers(CallContext* context, const v1::ListWorkersRequest* request,
                         v1::ListWorkersResponse* response) override;
  UnaryCall* ListEvents(CallContext* context, const v1::ListEventsRequest* request,
                        v1::ListEventsResponse* response) override;
  UnaryCall* Cancel(CallContext* context, const v1::CancelRequest* request, v1::Job* response) override;
  UnaryCall* Checkpoint(CallContext* context, const v1::CheckpointRequest* request,
                        v1::Job* response) override;
  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(CallContext* context,
                                                     const v1::WatchRequest* request) override;
  UnaryCall* ListReports(CallContext* context, const v1::ListReportsRequest* request,
                         v1::ListReportsResponse* response) override;
  grpc::ServerWriteReactor<v1::LogChunk>* ReadLog(CallContext* context,
                                                  const v1::LogRequest* request) override;
  grpc::ServerWriteReactor<v1::ProfileChunk>* Profile(CallContext* context,
                                                      const v1::ProfileRequest* request) override;
  UnaryCall* GetServerInfo(CallContext* context, const v1::GetServerInfoRequest* request,
                           v1::ServerInfo* response) override;
  UnaryCall* SignIn(CallContext* context, const v1::SignInRequest* request,
                    v1::SignInResponse* response) override;

 private:
  // Posts the job to the engine, and replies with it.
  void PostSubmit(controller::Submit submit, UnaryCall* reactor, v1::Job* response);

  struct OwnJob {
    std::string caller;  // "user/alice"
    v1::Job job;
  };
  // Returns the job `job` if the caller may make this call about it.
  absl::StatusOr<OwnJob> AdmitOwner(const CallContext& context, std::string_view method,
                                    const google::protobuf::Message& request, const std::string& job);

  const Parts parts_;
  SubmitPlanner planner_;
};

}  // namespace tandem::controller
