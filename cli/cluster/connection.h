// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/cluster/address.h"
#include "platform/steady_condition.h"
#include "tandem/v1/jobs.grpc.pb.h"

namespace tandem::cli {

absl::Status ToStatus(const grpc::Status& status);

// Cancels a call that lasts longer than `limit`, by the steady clock, or that is not wanted any more:
// `given_up`, if it is given, is asked four times a second, on another thread. In a gRPC that is built on
// Abseil's mutexes, as Debian's is, deadlines, back-offs and keepalives sleep until a time of the machine's
// clock: they end an hour late if that clock is set back by an hour.
class CallLimit {
 public:
  // `context` outlives this object.
  CallLimit(grpc::ClientContext& context, absl::Duration limit, const std::function<bool()>& given_up);
  ~CallLimit() ABSL_LOCKS_EXCLUDED(mu_);

  bool passed() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run(grpc::ClientContext& context, absl::Duration limit, const std::function<bool()>& given_up)
      ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of ended_
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool passed_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// A way to one controller's users' service. Not thread-safe.
class Connection {
 public:
  explicit Connection(Address address);

  // One try of a call: sets `began` when an answer has begun, after which the call is not made again.
  using Once = std::function<grpc::Status(v1::Jobs::Stub& stub, grpc::ClientContext& context, bool& began)>;

  // Makes a call, and repeats it up to twice while nothing accepts it, each time after a pause and over a new
  // connection. DeadlineExceeded after `limit`, which counts for all of it; Cancelled once `given_up` says
  // so.
  absl::Status Call(absl::Duration limit, const Once& once, const std::function<bool()>& given_up = nullptr);

 private:
  void Dial();

  const Address address_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
};

}  // namespace tandem::cli
