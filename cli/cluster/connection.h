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

// A connection to one controller's service for users (jobs.proto). Not thread-safe.
class Connection {
 public:
  explicit Connection(Address address);

  // A function that tries a call once. It runs on another thread if the call has a limit or a `given_up`. It
  // must set `began` when the answer begins to arrive; then the call is not repeated.
  using Once = std::function<grpc::Status(v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began)>;

  // Makes a call. Repeats it up to twice while no controller accepts it, each time after a pause and over a
  // new connection. Returns DeadlineExceeded after `limit`, which covers all tries and uses the steady
  // clock, and Cancelled once `given_up`, which is called four times a second, returns true.
  absl::Status Call(absl::Duration limit, const Once& once, const std::function<bool()>& given_up = nullptr);

 private:
  void Dial();

  const Address address_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
};

}  // namespace tandem::cli
