// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/cluster/address.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

// A watch that is open, over a connection of its own. Not thread-safe.
class WatchStream {
 public:
  enum class Event { kResponse, kTimeout, kClosed };

  // Begins at once.
  WatchStream(const Address& address, const v1::WatchRequest& request);
  ~WatchStream();

  // Waits for the next response, at most `limit`. kClosed: status() says why, and so do all later calls.
  Event Next(absl::Duration limit, v1::WatchResponse& response);
  const absl::Status& status() const;

 private:
  class Reader;  // keeps gRPC out of this header
  const std::unique_ptr<Reader> reader_;
};

}  // namespace tandem::cli
