// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "controller/rpc/caller.h"
#include "controller/rpc/sign_ins.h"
#include "platform/random.h"
#include "tls/identity.h"

namespace tandem::controller {

// Who is at the other end of each connection that gRPC serves. gRPC gets one end of a pair of sockets; the
// other end is given a name in the abstract namespace, which gRPC says to every call as its peer. A name is
// never used twice, so a call that outlives its connection cannot pass for another's. Thread-safe.
class Callers {
 public:
  // `sign_ins` outlives it.
  Callers(platform::Random& random, const SignIns& sign_ins);

  // Names `fd`, an unbound unix socket, and keeps its caller under that name until Remove. Empty where the
  // kernel has no room for a name.
  std::string Add(int fd, Caller caller) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);

  // Connections of `identity`.
  size_t NumOf(const tls::Identity& identity) const ABSL_LOCKS_EXCLUDED(mu_);

  // Whose call this is: the connection's, or, of the page's calls, the session's. Without a session those are
  // a user's whose name no certificate can have, so no job is its. nullopt: the connection or the session has
  // ended.
  std::optional<Caller> Of(const grpc::ServerContextBase& context) const ABSL_LOCKS_EXCLUDED(mu_);

  // Makes a call over a channel within this process, which has no connection to be known by, the page's: it
  // carries a secret that nobody else has. `session`: of SignIns, 32 hexadecimal digits, or empty;
  // `browser`: its address, "127.0.0.1:53122".
  void MarkAsPage(const std::string& session, const std::string& browser, grpc::ClientContext& context) const;

  // By grpc::ServerContext::peer().
  std::optional<Caller> Find(const std::string& peer) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const SignIns& sign_ins_;
  const std::string prefix_;  // not another process's
  const std::string page_secret_;
  mutable absl::Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Caller> callers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> nums_ ABSL_GUARDED_BY(mu_);  // by tls::ToText of who; none is 0
};

}  // namespace tandem::controller
