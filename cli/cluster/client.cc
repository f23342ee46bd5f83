#include "cli/cluster/client.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);

constexpr char kServiceConfig[] = R"({"methodConfig": [{"name": [{"service": "tandem.v1.Jobs"}],
  "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
                  "retryableStatusCodes": ["UNAVAILABLE"]}}]})";

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::chrono::system_clock::time_point Deadline(absl::Duration timeout) {
  return absl::ToChronoTime(absl::Now() + timeout);
}

class GrpcWatchStream : public WatchStream {
 public:
  GrpcWatchStream(v1::Jobs::Stub& stub, const v1::WatchRequest& request)
      : reader_(stub.AsyncWatch(&context_, request, &queue_, Tag(kStart))) {}

  ~GrpcWatchStream() override {
    context_.TryCancel();
    // Calls in progress write into this object.
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Event Next(absl::Time deadline, v1::WatchResponse& response) override {
    if (closed_) {
      return Event::kClosed;
    }
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      if (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(deadline)) != grpc::CompletionQueue::GOT_EVENT) {
        return Event::kTimeout;
      }
      if (tag == Tag(kFinish)) {
        closed_ = true;
        status_ = ToStatus(result_);
        return Event::kClosed;
      }
      if (!ok) {
        reader_->Finish(&result_, Tag(kFinish));
        continue;
      }
      const bool have = tag == Tag(kRead);
      if (have) {
        response = std::move(message_);
        message_.Clear();
      }
      reader_->Read(&message_, Tag(kRead));
      if (have) {
        return Event::kResponse;
      }
    }
  }

  const absl::Status& status() const override { return status_; }

 private:
  enum Step : intptr_t { kStart = 1, kRead, kFinish };
  static void* Tag(Step step) { return reinterpret_cast<void*>(step); }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  v1::WatchResponse message_;
  grpc::Status result_;
  absl::Status status_;
  bool closed_ = false;
  std::unique_ptr<grpc::ClientAsyncReader<v1::WatchResponse>> reader_;
};

// Until the stream ends, or `each` returns false.
template <typename Chunk>
absl::Status ReadAll(grpc::ClientContext& context, grpc::ClientReader<Chunk>& reader,
                     const std::function<bool(const Chunk&)>& each) {
  Chunk chunk;
  bool wanted = true;
  while (wanted && reader.Read(&chunk)) {
    wanted = each(chunk);
  }
  if (!wanted) {
    context.TryCancel();
    reader.Finish();
    return absl::OkStatus();
  }
  return ToStatus(reader.Finish());
}

}  // namespace

struct Client::Connection {
  std::unique_ptr<v1::Jobs::Stub> stub;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                       Response*),
                                const Request& request, absl::Duration timeout = kCallTimeout) {
    grpc::ClientContext context;
    context.set_deadline(Deadline(timeout));
    Response response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (!status.ok()) {
      return ToStatus(status);
    }
    return response;
  }
};

Client::Client(Address address) : address_(std::move(address)), connection_(std::make_unique<Connection>()) {
  // Errors reach the user through statuses; gRPC's own log would tear the display.
  gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(kServiceConfig);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // The least time that a connection may take: a busy controller, or one far away, is not an absent one.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kCallTimeout)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // A fresh connection per client: a second one to the same address must not share its back-off.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!absl::StartsWith(address_.target, "unix:")) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  connection_->stub = v1::Jobs::NewStub(
      grpc::CreateCustomChannel(address_.target, grpc::InsecureChannelCredentials(), arguments));
}

Client::~Client() = default;

absl::StatusOr<v1::Job> Client::Submit(const v1::SubmitRequest& request) {
  return connection_->Call(&v1::Jobs::Stub::Submit, request);
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  return connection_->Call(&v1::Jobs::Stub::GetJob, request);
}

absl::StatusOr<v1::Job> Client::Cancel(const std::string& job, const std::string& reason) {
  v1::CancelRequest request;
  request.set_job(job);
  request.set_reason(reason);
  return connection_->Call(&v1::Jobs::Stub::Cancel, request);
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo(absl::Duration timeout) {
  return connection_->Call(&v1::Jobs::Stub::GetServerInfo, v1::GetServerInfoRequest(), timeout);
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs(const std::vector<v1::JobState>& states) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  request.mutable_states()->Assign(states.begin(), states.end());
  do {
    absl::StatusOr<v1::ListJobsResponse> page = connection_->Call(&v1::Jobs::Stub::ListJobs, request);
    if (!page.ok()) {
      return page.status();
    }
    jobs.insert(jobs.end(), page->jobs().begin(), page->jobs().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers() {
  std::vector<v1::Worker> workers;
  v1::ListWorkersRequest request;
  do {
    absl::StatusOr<v1::ListWorkersResponse> page = connection_->Call(&v1::Jobs::Stub::ListWorkers, request);
    if (!page.ok()) {
      return page.status();
    }
    workers.insert(workers.end(), page->workers().begin(), page->workers().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return workers;
}

absl::StatusOr<std::vector<v1::Event>> Client::ListEvents(const std::string& job) {
  std::vector<v1::Event> events;
  v1::ListEventsRequest request;
  request.set_job(job);
  do {
    absl::StatusOr<v1::ListEventsResponse> page = connection_->Call(&v1::Jobs::Stub::ListEvents, request);
    if (!page.ok()) {
      return page.status();
    }
    events.insert(events.end(), page->events().begin(), page->events().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return events;
}

absl::Status Client::ListReports(const std::string& job, int64_t first_step, int64_t last_step, bool norms,
                                 const std::function<bool(const v1::ListReportsResponse&)>& each) {
  v1::ListReportsRequest request;
  request.set_job(job);
  request.set_first_step(first_step);
  request.set_last_step(last_step);
  request.set_norms(norms);
  request.set_page_size(norms ? 16 : 1000);  // a report with norms may have 100 kB, a message 4 MiB
  do {
    absl::StatusOr<v1::ListReportsResponse> page = connection_->Call(&v1::Jobs::Stub::ListReports, request);
    if (!page.ok()) {
      return page.status();
    }
    if (!each(*page)) {
      break;
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::Status Client::ReadLog(const v1::LogRequest& request,
                             const std::function<bool(const v1::LogChunk&)>& each) {
  grpc::ClientContext context;
  if (!request.follow()) {
    context.set_deadline(Deadline(absl::Minutes(10)));
  }
  return ReadAll<v1::LogChunk>(context, *connection_->stub->ReadLog(&context, request), each);
}

absl::Status Client::Profile(const v1::ProfileRequest& request,
                             const std::function<bool(const v1::ProfileChunk&)>& each) {
  grpc::ClientContext context;  // without a deadline: a step may take long
  return ReadAll<v1::ProfileChunk>(context, *connection_->stub->Profile(&context, request), each);
}

std::unique_ptr<WatchStream> Client::Watch(const v1::WatchRequest& request) {
  return std::make_unique<GrpcWatchStream>(*connection_->stub, request);
}

}  // namespace tandem::cli
