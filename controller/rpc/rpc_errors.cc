// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rpc_errors.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "controller/runtime.pb.h"
#include "jobspec/jobspec.h"

namespace tandem::controller {
namespace {

// A client accepts 8 kB of trailers. The message takes up to three bytes a character of them
// (percent-encoding), the details four bytes for three (base64).
constexpr size_t kTrailerBytes = 7000;

size_t EncodedSize(const std::string& message) {
  size_t size = 0;
  for (const char c : message) {
    size += c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3;
  }
  return size;
}

std::string Details(const std::vector<v1::Violation>& violations, const std::string& message) {
  BadRequest bad_request;
  for (const v1::Violation& violation : violations) {
    BadRequest::FieldViolation& field = *bad_request.add_field_violations();
    field.set_field(violation.path());
    field.set_description(jobspec::ToText(violation));
  }
  RpcStatus status;
  status.set_code(grpc::StatusCode::INVALID_ARGUMENT);
  status.set_message(message);
  google::protobuf::Any& detail = *status.add_details();
  detail.set_type_url("type.googleapis.com/google.rpc.BadRequest");
  detail.set_value(bad_request.SerializeAsString());
  return status.SerializeAsString();
}

}  // namespace

grpc::Status ToRpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

grpc::Status InvalidSpec(const std::vector<v1::Violation>& violations) {
  std::vector<v1::Violation> shown(violations.begin(),
                                   violations.begin() + std::min(violations.size(), kTrailerBytes / 32));
  while (true) {
    std::string message(absl::StripSuffix(jobspec::ToText(shown), "\n"));
    if (shown.size() < violations.size()) {
      absl::StrAppend(&message, "\n", violations.size() - shown.size(),
                      " more violations; Validate lists all of them");
    }
    const std::string details = Details(shown, message);
    if (EncodedSize(message) + details.size() * 4 / 3 <= kTrailerBytes || shown.size() <= 1) {
      return {grpc::StatusCode::INVALID_ARGUMENT, message, details};
    }
    shown.pop_back();
  }
}

}  // namespace tandem::controller
