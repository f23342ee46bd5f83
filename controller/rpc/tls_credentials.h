// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "tls/server_tls.h"

namespace tandem::controller {

// Clients that were not let in, for one line in ten seconds. Thread-safe.
class TurnedAway {
 public:
  void Add(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Logs how many there were, and the reason of the last. Call about once a second.
  void Tell(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  int64_t clients_ ABSL_GUARDED_BY(mu_) = 0;  // since the last line
  std::string why_ ABSL_GUARDED_BY(mu_);      // the last of them
  absl::Time told_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// The roles that may connect.
struct Admits {
  bool users = true;  // and admins
  bool workers = true;
};

// gRPC's TLS 1.2 and 1.3 with the files that `tls` has published: a certificate is asked of every client, and
// HTTP/2 is spoken only to one that is admitted. The client does not learn why it is not: the log does.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<const tls::ServerTls> tls,
                                                        Admits admits,
                                                        std::shared_ptr<TurnedAway> turned_away);

}  // namespace tandem::controller
