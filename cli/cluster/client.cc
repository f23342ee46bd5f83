// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/client.h"

#include <utility>

#include "cli/cluster/connection.h"
#include "plan/prefetch_choice.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kPlannedTimeout =
    absl::Minutes(3);  // the controller simulates such specs, one at a time
constexpr absl::Duration kLogTimeout = absl::Minutes(10);

template <typename Request, typename Response>
absl::StatusOr<Response> CallUnary(Connection& connection,
                                   grpc::Status (v1::Jobs::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&, Response*),
                                   const Request& request, absl::Duration timeout = kCallTimeout,
                                   const std::function<bool()>& given_up = nullptr) {
  Response response;
  const absl::Status status = connection.Call(
      timeout,
      [&](v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& /*began*/) {
        return (stub.*method)(&context, request, &response);
      },
      given_up);
  if (absl::IsCancelled(status) && !(given_up && given_up())) {  // by the controller
    return absl::UnavailableError("the controller is shutting down");
  }
  TANDEM_RETURN_IF_ERROR(status);
  return response;
}

// Calls `each` for each page until it returns false.
template <typename Page, typename Method, typename Request>
absl::Status CallPages(Connection& connection, Method method, Request request,
                       const std::function<bool(const Page&)>& each) {
  do {
    TANDEM_ASSIGN_OR_RETURN(const Page page, CallUnary(connection, method, request));
    if (!each(page)) {
      break;
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

// Returns the entries of all pages; `of` is the list in a page.
template <typename Entry, typename Page, typename Method, typename Request>
absl::StatusOr<std::vector<Entry>> CallAllPages(Connection& connection, Method method, const Request& request,
                                                const google::protobuf::RepeatedPtrField<Entry>& (Page::*of)()
                                                    const) {
  std::vector<Entry> out;
  TANDEM_RETURN_IF_ERROR(CallPages<Page>(connection, method, request, [&](const Page& page) {
    out.insert(out.end(), (page.*of)().begin(), (page.*of)().end());
    return true;
  }));
  return out;
}

// Reads until the stream ends or `each` returns false.
template <typename Request, typename Chunk>
absl::Status ReadAll(Connection& connection,
                     std::unique_ptr<grpc::ClientReader<Chunk>> (v1::Jobs::Stub::*method)(
                         grpc::ClientContext*, const Request&),
                     const Request& request, absl::Duration timeout,
                     const std::function<bool(const Chunk&)>& each,
                     const std::function<bool()>& given_up = nullptr) {
  const Connection::Once once = [&](v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began) {
    const std::unique_ptr<grpc::ClientReader<Chunk>> reader = (stub.*method)(&context, request);
    Chunk chunk;
    while (reader->Read(&chunk)) {
      began = true;
      if (!each(chunk)) {
        context.TryCancel();
        reader->Finish();
        return grpc::Status::OK;
      }
    }
    return reader->Finish();
  };
  return connection.Call(timeout, once, given_up);
}

}  // namespace

Client::Client(Address address)
    : address_(std::move(address)), connection_(std::make_unique<Connection>(address_)) {}

Client::~Client() = default;

absl::StatusOr<v1::Job> Client::Submit(const v1::SubmitRequest& request,
                                       const std::function<bool()>& given_up) {
  return CallUnary(*connection_, &v1::Jobs::Stub::Submit, request,
                   plan::ChoosesPrefetch(request.spec()) ? kPlannedTimeout : kCallTimeout, given_up);
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  return CallUnary(*connection_, &v1::Jobs::Stub::GetJob, request);
}

absl::StatusOr<v1::Job> Client::Cancel(const std::string& job, const std::string& reason, bool checkpoint) {
  v1::CancelRequest request;
  request.set_job(job);
  request.set_reason(reason);
  request.set_checkpoint(checkpoint);
  return CallUnary(*connection_, &v1::Jobs::Stub::Cancel, request);
}

absl::StatusOr<v1::Job> Client::Checkpoint(const std::string& job) {
  v1::CheckpointRequest request;
  request.set_job(job);
  return CallUnary(*connection_, &v1::Jobs::Stub::Checkpoint, request);
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo(absl::Duration timeout) {
  return CallUnary(*connection_, &v1::Jobs::Stub::GetServerInfo, v1::GetServerInfoRequest(), timeout);
}

absl::StatusOr<v1::SignInResponse> Client::SignIn() {
  return CallUnary(*connection_, &v1::Jobs::Stub::SignIn, v1::SignInRequest());
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs(const std::vector<v1::JobState>& states, bool brief) {
  v1::ListJobsRequest request;
  request.set_page_size(1000);  // the controller's limit; its pages have at most 3 MiB
  request.set_brief(brief);
  request.mutable_states()->Assign(states.begin(), states.end());
  return CallAllPages(*connection_, &v1::Jobs::Stub::ListJobs, request, &v1::ListJobsResponse::jobs);
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers() {
  return CallAllPages(*connection_, &v1::Jobs::Stub::ListWorkers, v1::ListWorkersRequest(),
                      &v1::ListWorkersResponse::workers);
}

absl::Status Client::CheckDecides(absl::Duration timeout) {
  v1::ListWorkersRequest request;
  request.set_page_size(1);
  return CallUnary(*connection_, &v1::Jobs::Stub::ListWorkers, request, timeout).status();
}

absl::StatusOr<std::vector<v1::Event>> Client::ListEvents(const std::string& job, int64_t after_seq) {
  v1::ListEventsRequest request;
  request.set_job(job);
  request.set_after_seq(after_seq);
  return CallAllPages(*connection_, &v1::Jobs::Stub::ListEvents, request, &v1::ListEventsResponse::events);
}

absl::Status Client::ListReports(const std::string& job, int64_t first_step, int64_t last_step, bool norms,
                                 const std::function<bool(const v1::ListReportsResponse&)>& each) {
  v1::ListReportsRequest request;
  request.set_job(job);
  request.set_first_step(first_step);
  request.set_last_step(last_step);
  request.set_norms(norms);
  request.set_page_size(norms ? 16 : 1000);  // a report with norms may have 100 kB, a message 4 MiB
  return CallPages(*connection_, &v1::Jobs::Stub::ListReports, request, each);
}

absl::Status Client::ReadLog(const v1::LogRequest& request,
                             const std::function<bool(const v1::LogChunk&)>& each,
                             const std::function<bool()>& given_up) {
  return ReadAll(*connection_, &v1::Jobs::Stub::ReadLog, request,
                 request.follow() ? absl::InfiniteDuration() : kLogTimeout, each, given_up);
}

absl::Status Client::Profile(const v1::ProfileRequest& request,
                             const std::function<bool(const v1::ProfileChunk&)>& each) {
  // Without a limit: a step may take long.
  return ReadAll(*connection_, &v1::Jobs::Stub::Profile, request, absl::InfiniteDuration(), each);
}

}  // namespace tandem::cli
