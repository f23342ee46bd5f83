// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "controller/http/http_server.h"
#include "google/protobuf/message.h"

namespace tandem::controller {

// Sets the fields of a message that a query names. InvalidArgument for a name that is not a field, a value
// that does not fit, or a field that is a message. Protobuf's JSON decides what fits, but a text has no
// control characters, a boolean is "true" or "false", and a value of an enum is its name.
absl::Status FillFromQuery(const QueryFields& query, google::protobuf::Message& message);

// An answer of the page's API, which no cache may keep.
HttpAnswer JsonAnswer(int status, std::string body);

// The answer to a call of `name` by GET that must be a POST, or the other way round.
HttpAnswer WrongMethod(const std::string& name, bool must_be_post);

// {"code": "NOT_FOUND", "message": "..."} with the HTTP status that fits.
HttpAnswer JsonError(const absl::Status& status);

absl::Status StatusOf(const grpc::Status& status);

// Writes a text as a string of JSON, with its quotes; "" if the text is not valid UTF-8.
std::string JsonText(const std::string& text);

}  // namespace tandem::controller
