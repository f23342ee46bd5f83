// SPDX-License-Identifier: Apache-2.0
#include "controller/http/json_api.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <cmath>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "controller/http/query.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::controller {
namespace {

// Answers of megabytes are made beside scrapes; what comes on top is to come again.
constexpr int kMostAtOnce = 8;

using Stub = v1::Jobs::Stub;

HttpAnswer Json(int status, std::string body) {
  return {.status = status,
          .type = "application/json; charset=utf-8",
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"}}};
}

int HttpStatus(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return 200;
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::OUT_OF_RANGE:
      return 400;
    case grpc::StatusCode::UNAUTHENTICATED:
      return 401;
    case grpc::StatusCode::PERMISSION_DENIED:
      return 403;
    case grpc::StatusCode::NOT_FOUND:
      return 404;
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ALREADY_EXISTS:
      return 409;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return 429;
    case grpc::StatusCode::UNAVAILABLE:
      return 503;
    default:
      return 500;
  }
}

HttpAnswer Error(grpc::StatusCode code, const std::string& message) {
  google::protobuf::StringValue text;  // quotes and escapes it
  text.set_value(message);
  std::string quoted;
  if (!google::protobuf::util::MessageToJsonString(text, &quoted).ok()) {  // no UTF-8
    quoted.clear();
  }
  return Json(HttpStatus(code),
              absl::StrCat("{\"code\":\"", absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
                           "\",\"message\":", quoted.empty() ? "\"\"" : quoted, "}"));
}

double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  double out = value;
  static_cast<void>(absl::SimpleAtod(absl::StrFormat("%.5g", value), &out));
  return out;
}

template <typename Response>
void Shorten(Response&) {}
void Shorten(v1::ListReportsResponse& response) {
  for (v1::StepReport& report : *response.mutable_reports()) {
    v1::Norms& norms = *report.mutable_norms();
    for (auto* list : {norms.mutable_weight(), norms.mutable_gradient(), norms.mutable_update(),
                       norms.mutable_rms(), norms.mutable_max_abs()}) {
      for (double& value : *list) {
        value = Rounded(value);
      }
    }
  }
}

template <typename Request, typename Response>
HttpAnswer Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                grpc::ClientContext& context, const std::string& query) {
  Request request;
  if (const absl::Status status = FillFromQuery(query, request); !status.ok()) {
    return Error(grpc::StatusCode::INVALID_ARGUMENT, std::string(status.message()));
  }
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) {
    return Error(status.error_code(), status.error_message());
  }
  Shorten(response);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string body;
  const auto printed = google::protobuf::util::MessageToJsonString(response, &body, options);
  return printed.ok() ? Json(200, std::move(body))
                      : Error(grpc::StatusCode::INTERNAL, "the answer has no JSON: " + printed.ToString());
}

template <auto method>
HttpAnswer Of(Stub& stub, grpc::ClientContext& context, const std::string& query) {
  return Call(stub, method, context, query);
}

// Nothing that changes anything, and nothing that makes ranks work.
using Caller = HttpAnswer (*)(Stub&, grpc::ClientContext&, const std::string&);
const std::map<std::string, Caller>& Methods() {
  static const auto& methods = *new std::map<std::string, Caller>{
      {"GetJob", Of<&Stub::GetJob>},           {"GetServerInfo", Of<&Stub::GetServerInfo>},
      {"ListEvents", Of<&Stub::ListEvents>},   {"ListJobs", Of<&Stub::ListJobs>},
      {"ListReports", Of<&Stub::ListReports>}, {"ListWorkers", Of<&Stub::ListWorkers>},
  };
  return methods;
}

}  // namespace

HttpAnswer JsonApi::Answer(const std::string& method, const std::string& query) {
  const auto it = Methods().find(method);
  if (it == Methods().end()) {
    return Error(grpc::StatusCode::NOT_FOUND,
                 absl::StrCat("there is no such call; allowed: ",
                              absl::StrJoin(Methods(), ", ", [](std::string* out, const auto& each) {
                                absl::StrAppend(out, each.first);
                              })));
  }
  const absl::Cleanup leave = [this] { --in_progress_; };
  if (++in_progress_ > kMostAtOnce) {
    HttpAnswer busy = Error(grpc::StatusCode::UNAVAILABLE, "too many calls at once; try again in a second");
    busy.headers.emplace_back("Retry-After", "1");
    return busy;
  }
  Stub stub(channel_);
  grpc::ClientContext context;
  mark_(context);
  return it->second(stub, context, query);
}

HttpAnswer JsonApi::Health() {
  Stub stub(channel_);
  // Answered by the thread that decides.
  v1::ListWorkersRequest request;
  request.set_page_size(1);
  v1::ListWorkersResponse response;
  grpc::ClientContext context;
  mark_(context);
  const grpc::Status status = stub.ListWorkers(&context, request, &response);
  return {.status = status.ok() ? 200 : 503, .body = status.ok() ? "ok\n" : status.error_message() + "\n"};
}

}  // namespace tandem::controller
