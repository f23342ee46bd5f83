// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "controller/http/http_server.h"
#include "google/protobuf/message.h"

namespace tandem::controller {

// Sets the fields of `message` that are in the query. InvalidArgument for a name that is not a field, a field
// that is a message, or a value that does not fit. A value fits if protobuf's JSON takes it and it has no
// control characters; a boolean must be "true" or "false", an enum's value its name.
absl::Status FillFromQuery(const QueryFields& query, google::protobuf::Message& message);

// Makes an answer of the page's API, which no cache may keep.
HttpAnswer JsonAnswer(int status, std::string body);

// Makes the answer (405) to a call of `name` by GET that must be by POST, or by POST that must be by GET.
HttpAnswer WrongMethod(const std::string& name, bool must_be_post);

// Makes the answer to an error, {"code": "NOT_FOUND", "message": "..."}, with the matching HTTP status.
HttpAnswer JsonError(const absl::Status& status);

absl::Status StatusOf(const grpc::Status& status);

// Writes `text` as a JSON string, with its quotes; the empty JSON string if it is not valid UTF-8.
std::string JsonText(const std::string& text);

}  // namespace tandem::controller
