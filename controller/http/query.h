// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace tandem::controller {

// Sets the fields of a message that the query of a URL names:
// "page_size=10&states=JOB_STATE_QUEUED&norms=true". InvalidArgument for a name that is not a field, a value
// that does not fit, or a field that is a message.
absl::Status FillFromQuery(const std::string& query, google::protobuf::Message& message);

}  // namespace tandem::controller
