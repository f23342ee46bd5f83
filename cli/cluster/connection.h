// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/cluster/address.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::cli {

absl::Status ToStatus(const grpc::Status& status);

// A way to one controller's users' service. Not thread-safe.
class Connection {
 public:
  explicit Connection(Address address);

  // One try of a call, on another thread if it has a limit or may be given up: sets `began` when an answer
  // has begun, after which the call is not made again.
  using Once = std::function<grpc::Status(v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began)>;

  // Makes a call, and repeats it up to twice while nothing accepts it, each time after a pause and over a new
  // connection. DeadlineExceeded after `limit`, which counts for all of it, by the steady clock; Cancelled
  // once `given_up`, which is asked four times a second, says so.
  absl::Status Call(absl::Duration limit, const Once& once, const std::function<bool()>& given_up = nullptr);

 private:
  void Dial();

  const Address address_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
};

}  // namespace tandem::cli
