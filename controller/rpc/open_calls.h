// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/interceptors.h"
#include "controller/rpc/open_connections.h"
#include "tls/identity.h"

namespace tandem::controller {

// Counts the open calls of each caller, streams included. This bounds the memory that one user's calls may
// hold (Access::kMostOpenCalls). Thread-safe.
class OpenCalls {
 public:
  void Add(const tls::Identity& identity) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const tls::Identity& identity) ABSL_LOCKS_EXCLUDED(mu_);
  size_t NumOf(const tls::Identity& identity) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, size_t> nums_ ABSL_GUARDED_BY(mu_);  // by tls::ToText; never 0
};

// Counts all calls in `open`, from before their handlers are asked until they are done. Those of gRPC's own
// services (reflection, health), whose handlers know neither limits nor revoked certificates, are cancelled
// if Access::Admit would refuse them. All outlive the server.
std::unique_ptr<InterceptorFactory> CountOpenCalls(const Callers& callers, OpenCalls& open,
                                                   OpenConnections& connections);

}  // namespace tandem::controller
