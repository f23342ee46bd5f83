// SPDX-License-Identifier: Apache-2.0
#include "controller/http/json_answer.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
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

absl::Status FillFromQuery(const QueryFields& query, google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  for (const auto& [name, value] : query) {
    const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(name), "\" is not a field of ",
                                                     message.GetDescriptor()->name()));
    }
    const std::string text = JsonText(value);
    const std::unique_ptr<google::protobuf::Message> part(message.New());
    const bool fits =
        field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE &&
        (field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL || value == "true" || value == "false") &&
        (field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM ||
         field->enum_type()->FindValueByName(value) != nullptr) &&
        std::none_of(value.begin(), value.end(), absl::ascii_iscntrl) &&
        google::protobuf::util::JsonStringToMessage(
            absl::StrCat("{\"", name, "\":", field->is_repeated() ? absl::StrCat("[", text, "]") : text, "}"),
            part.get())
            .ok();
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": \"", absl::CHexEscape(value), "\" is not of type ", field->type_name()));
    }
    message.MergeFrom(*part);
  }
  return absl::OkStatus();
}

HttpAnswer JsonAnswer(int status, std::string body) {
  return {.status = status,
          .type = "application/json; charset=utf-8",
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"}}};
}

HttpAnswer WrongMethod(const std::string& name, bool must_be_post) {
  HttpAnswer answer = JsonError(
      absl::InvalidArgumentError(absl::StrCat(name, " must be called by ", must_be_post ? "POST" : "GET")));
  answer.status = 405;
  answer.headers.emplace_back("Allow", must_be_post ? "POST" : "GET, HEAD");
  return answer;
}

HttpAnswer JsonError(const absl::Status& status) {
  return JsonAnswer(HttpStatus(status.code()),
                    absl::StrCat("{\"code\":\"", absl::StatusCodeToString(status.code()),
                                 "\",\"message\":", JsonText(std::string(status.message())), "}"));
}

}  // namespace tandem::controller
