// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>

#include "jobspec/jobspec.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::controller {

// A user's client, with deadlines so that a failing test ends.
class JobClient {
 public:
  explicit JobClient(
      const std::string& address,
      const std::shared_ptr<grpc::ChannelCredentials>& credentials = grpc::InsecureChannelCredentials()) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(address, credentials, arguments);
    stub_ = v1::Jobs::NewStub(channel_);
  }

  static v1::JobSpec SpecOf(const std::string& name, int ranks) {
    const jobspec::ReadResult read = jobspec::ReadText("name: \"" + name + R"("
model: {preset: llama-tiny}
data: {train: /usr/include, tokenizer: bytes}
training: {steps: 1000, sequence_length: 64, micro_batch_size: 1, global_batch_size: 4, seed: 1}
parallelism: {ranks: )" + std::to_string(ranks) + R"(}
checkpoint: {directory: "/tmp/never-made/)" + name + R"("}
)",
                                                       "");
    EXPECT_TRUE(read.violations.empty()) << jobspec::ToText(read.violations);
    return read.spec;
  }

  static void SetDeadline(grpc::ClientContext& context, int seconds = 60) {
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
  }

  // A method of the service that has one request and one response.
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::Jobs::Stub::*)(grpc::ClientContext*, const Request&, Response*);

  // Makes a call. `waits`: if the controller is away, waits for it.
  template <typename Request, typename Response>
  grpc::Status Call(Method<Request, Response> method, const std::type_identity_t<Request>& request,
                    std::type_identity_t<Response>& response, bool waits = true) const {
    grpc::ClientContext context;
    SetDeadline(context);
    context.set_wait_for_ready(waits);
    return (*stub_.*method)(&context, request, &response);
  }
  // Makes a call that must succeed, and returns its response.
  template <typename Request, typename Response>
  Response Ask(Method<Request, Response> method, const std::type_identity_t<Request>& request = {}) const {
    Response response;
    const grpc::Status status = Call(method, request, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // Makes a request about one job.
  template <typename Request>
  static Request Of(const std::string& job) {
    Request request;
    request.set_job(job);
    return request;
  }

  grpc::Status Submit(const v1::JobSpec& spec, const std::string& request_id, v1::Job& job) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(request_id);
    return Call(&v1::Jobs::Stub::Submit, request, job);
  }
  // Submit a job that must be accepted; Ended also waits for its end.
  v1::Job Submitted(const std::string& name, int ranks) {
    v1::Job job;
    const grpc::Status status = Submit(SpecOf(name, ranks), "", job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::Job Ended(const std::string& name, int ranks) {
    v1::Job job = Submitted(name, ranks);
    const grpc::Status status = Follow(name, job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::Job AwaitRunning(const std::string& name) {
    v1::Job job;
    Until([&] { return Get(name, job).ok() && job.state() == v1::JOB_STATE_RUNNING; });
    return job;
  }
  v1::ListWorkersResponse Workers() const { return Ask(&v1::Jobs::Stub::ListWorkers); }

  grpc::Status Get(const std::string& id_or_name, v1::Job& job) {
    return Call(&v1::Jobs::Stub::GetJob, Of<v1::GetJobRequest>(id_or_name), job);
  }

  // Watches until the job has ended, or the stream breaks.
  grpc::Status Follow(const std::string& name, v1::Job& job, int64_t* reports = nullptr) {
    grpc::ClientContext context;
    SetDeadline(context);
    auto request = Of<v1::WatchRequest>(name);
    request.set_reports(reports != nullptr);
    const auto stream = stub_->Watch(&context, request);
    v1::WatchResponse response;
    while (stream->Read(&response)) {
      if (response.has_snapshot()) {
        job = response.snapshot();
      } else if (response.has_changed()) {
        job = response.changed();
      } else if (response.has_report() && reports != nullptr) {
        ++*reports;
      }
      if (job.state() >= v1::JOB_STATE_SUCCEEDED) {
        context.TryCancel();
        stream->Finish();
        return grpc::Status::OK;
      }
    }
    return stream->Finish();
  }

  // Calls `done` until it returns true, or fails the test after two minutes.
  template <typename Done>
  static void Until(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "it never happened";
      std::this_thread::yield();
    }
  }

  v1::Jobs::Stub& stub() { return *stub_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
};

}  // namespace tandem::controller
