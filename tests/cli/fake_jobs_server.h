// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/time.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::cli {

// A users' service that answers as a test scripts it, over real gRPC on a unix socket. Scripts are set before
// the call that needs them.
class FakeJobsServer : public v1::Jobs::Service {
 public:
  using WatchScript =
      std::function<grpc::Status(const v1::WatchRequest&, grpc::ServerWriter<v1::WatchResponse>&)>;

  explicit FakeJobsServer(const std::string& folder) : socket_(folder + "/controller") { Start(); }
  ~FakeJobsServer() override { Stop(); }

  std::string address() const { return "unix:" + socket_; }

  void Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  void Stop() {
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_.reset();
    }
  }

  std::vector<v1::Job> jobs;          // answers GetJob, by id or name, and ListJobs, two to a page
  std::atomic<int> get_failures = 0;  // of the next GetJobs
  std::vector<v1::Worker> workers;
  std::vector<v1::Event> events;
  std::deque<v1::Event> later_events;  // one with each look after the first
  std::atomic<int> event_looks = 0;
  std::deque<grpc::Status> event_failures;  // of the looks after the first
  std::atomic<int> worker_looks = 0;
  grpc::Status sign_in_status;
  int64_t checkpoint_answered_later = 0;  // > 0: by the first job, once Checkpoint has been called
  grpc::Status checkpoint_status;         // of Checkpoint, whose request is number 77
  std::vector<v1::StepReport> reports;    // answers ListReports, three to a page
  v1::ParameterTable table;
  std::deque<WatchScript> watches;  // one per call; without one the call ends UNAVAILABLE
  std::vector<v1::LogChunk> log;
  std::vector<v1::ProfileChunk> profile;
  grpc::Status submit_status;
  std::function<void(const grpc::ServerContext&)> on_submit;  // called before it answers
  std::string build = "other";
  std::string store_error;
  absl::Time now = absl::InfinitePast();  // by the clock of the server; not answered by default

  // What was asked for.
  std::vector<v1::SubmitRequest> submitted;
  std::vector<v1::CancelRequest> cancelled;
  std::atomic<bool> brief_asked = false;
  std::vector<v1::WatchRequest> watched;
  std::vector<v1::LogRequest> log_requests;
  std::vector<v1::ProfileRequest> profile_requests;

  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request, v1::Job* job) override {
    if (on_submit) {
      on_submit(*context);
    }
    absl::MutexLock lock(&mu_);
    submitted.push_back(*request);
    if (submit_status.ok() && !jobs.empty()) {
      *job = jobs[0];
    }
    return submit_status;
  }

  grpc::Status SignIn(grpc::ServerContext*, const v1::SignInRequest*, v1::SignInResponse* made) override {
    made->set_code(std::string(32, 'a'));
    made->set_page("127.0.0.1:9464");
    made->set_caller("user/alice");
    made->mutable_code_life()->set_seconds(60);
    return sign_in_status;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request, v1::Job* job) override {
    return get_failures-- > 0 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it is being restarted")
                              : Find(request->job(), job);
  }

  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    brief_asked = request->brief();
    std::vector<v1::Job> listed;
    std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(listed), [&](const v1::Job& job) {
      return request->states().empty() ||
             std::count(request->states().begin(), request->states().end(), job.state()) > 0;
    });
    response->set_next_page_token(Page(listed, request->page_token(), 2, response->mutable_jobs()));
    return grpc::Status::OK;
  }

  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override {
    ++worker_looks;
    response->set_next_page_token(Page(workers, request->page_token(), 2, response->mutable_workers()));
    return grpc::Status::OK;
  }

  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override {
    const absl::MutexLock lock(&mu_);
    if (++event_looks > 1 && !event_failures.empty()) {
      const grpc::Status failure = event_failures.front();
      event_failures.pop_front();
      return failure;
    }
    std::vector<v1::Event> wanted;
    for (const v1::Event& event : events) {
      if (event.seq() > request->after_seq() || request->after_seq() == 0) {
        wanted.push_back(event);
      }
    }
    // What happens after the first look: one each time.
    if (request->page_token().empty() && event_looks > 1 && !later_events.empty()) {
      wanted.push_back(later_events.front());
      later_events.pop_front();
      events.push_back(wanted.back());
    }
    response->set_next_page_token(Page(wanted, request->page_token(), 2, response->mutable_events()));
    return grpc::Status::OK;
  }

  grpc::Status Checkpoint(grpc::ServerContext*, const v1::CheckpointRequest* request, v1::Job* job) override {
    const grpc::Status found = Find(request->job(), job);
    if (!found.ok() || !checkpoint_status.ok()) {
      return found.ok() ? checkpoint_status : found;
    }
    job->mutable_checkpoints()->set_requested(77);
    if (checkpoint_answered_later > 0) {
      jobs[0].mutable_checkpoints()->set_answered(checkpoint_answered_later);
    }
    return grpc::Status::OK;
  }

  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request, v1::Job* job) override {
    absl::MutexLock lock(&mu_);
    cancelled.push_back(*request);
    return Find(request->job(), job);
  }

  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    WatchScript script;
    {
      absl::MutexLock lock(&mu_);
      if (watches.empty()) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no script");
      }
      watched.push_back(*request);
      script = watches.front();
      watches.pop_front();
    }
    return script(*request, *writer);
  }

  grpc::Status ListReports(grpc::ServerContext*, const v1::ListReportsRequest* request,
                           v1::ListReportsResponse* response) override {
    std::vector<v1::StepReport> wanted;
    for (v1::StepReport report : reports) {
      if (report.step() >= request->first_step() &&
          (request->last_step() == 0 || report.step() <= request->last_step())) {
        if (!request->norms()) {
          report.clear_norms();
        }
        wanted.push_back(report);
      }
    }
    if (request->norms()) {
      *response->mutable_table() = table;
    }
    response->set_next_page_token(Page(wanted, request->page_token(), 3, response->mutable_reports()));
    return grpc::Status::OK;
  }

  grpc::Status ReadLog(grpc::ServerContext*, const v1::LogRequest* request,
                       grpc::ServerWriter<v1::LogChunk>* writer) override {
    {
      absl::MutexLock lock(&mu_);
      log_requests.push_back(*request);
    }
    for (const v1::LogChunk& chunk : log) {
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  grpc::Status Profile(grpc::ServerContext*, const v1::ProfileRequest* request,
                       grpc::ServerWriter<v1::ProfileChunk>* writer) override {
    {
      absl::MutexLock lock(&mu_);
      profile_requests.push_back(*request);
    }
    for (const v1::ProfileChunk& chunk : profile) {
      writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_build(build);
    info->set_store_error(store_error);
    if (now != absl::InfinitePast()) {
      *info->mutable_now() = proto::ToProto(now);
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status Find(const std::string& name, v1::Job* job) const {
    for (const v1::Job& each : jobs) {
      if (each.id() == name || each.name() == name) {
        *job = each;
        return grpc::Status::OK;
      }
    }
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job " + name + "; `tandem get jobs` lists them");
  }

  template <typename Message, typename Field>
  static std::string Page(const std::vector<Message>& all, const std::string& token, size_t size,
                          Field* field) {
    const size_t begin = token.empty() ? 0 : std::stoul(token);
    for (size_t i = begin; i < std::min(all.size(), begin + size); ++i) {
      *field->Add() = all[i];
    }
    return begin + size < all.size() ? std::to_string(begin + size) : "";
  }

  const std::string socket_;
  absl::Mutex mu_;  // of what was asked for, and the scripts
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem::cli
