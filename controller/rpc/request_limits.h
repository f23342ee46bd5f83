// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace tandem::controller {

// Bounds of one request, besides its total size: far above any useful request, and far below a harmful one.
struct RequestLimits {
  size_t string_bytes = size_t{64} << 10;  // of each string
  int list_entries = 100'000;              // of each list or map of strings or messages
};

// The bounds of messages of workers, which cut their own strings to half of these
// (worker/controller_client.cc).
inline constexpr RequestLimits kLimitsOfWorker{.string_bytes = size_t{16} << 10, .list_entries = 20'000};

// InvalidArgument for the first field beyond the limits, with its path, its size and what is allowed. Bytes
// and lists of numbers are bounded only by the message's size. Reads only the sizes of lists and strings.
absl::Status CheckLimits(const google::protobuf::Message& request, const RequestLimits& limits = {});

}  // namespace tandem::controller
