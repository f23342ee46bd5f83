// SPDX-License-Identifier: Apache-2.0
#include "controller/http/json_answer.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

}  // namespace

absl::Status StatusOf(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

std::string JsonText(const std::string& text) {
  google::protobuf::StringValue value;  // quotes and escapes it
  value.set_value(text);
  std::string quoted;
  const bool is_text = google::protobuf::util::MessageToJsonString(value, &quoted).ok();
  return is_text && !quoted.empty() ? quoted : "\"\"";
}

HttpAnswer JsonAnswer(int status, std::string body) {
  return {.status = status,
          .type = "application/json; charset=utf-8",
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"}}};
}

HttpAnswer JsonError(const absl::Status& status) {
  return JsonAnswer(HttpStatus(status.code()),
                    absl::StrCat("{\"code\":\"", absl::StatusCodeToString(status.code()),
                                 "\",\"message\":", JsonText(std::string(status.message())), "}"));
}

}  // namespace tandem::controller
