// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "controller/http/http_server.h"

namespace tandem::controller {

// An answer of the page's API, which no cache may keep.
HttpAnswer JsonAnswer(int status, std::string body);

// {"code": "NOT_FOUND", "message": "..."} with the HTTP status that fits.
HttpAnswer JsonError(const absl::Status& status);

absl::Status StatusOf(const grpc::Status& status);

// Writes a text as a string of JSON, with its quotes; "" if the text is not valid UTF-8.
std::string JsonText(const std::string& text);

}  // namespace tandem::controller
