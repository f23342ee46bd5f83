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

// Counts refused clients, and logs a line about them every ten seconds. Thread-safe.
class TurnedAway {
 public:
  void Add(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Logs the number of refused clients since the last line, and the reason of the last refusal. Call about
  // once a second.
  void LogRefusals(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  int64_t clients_ ABSL_GUARDED_BY(mu_) = 0;  // since the last line
  std::string why_ ABSL_GUARDED_BY(mu_);      // the reason of the last refusal
  absl::Time logged_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

// The roles that may connect.
struct Admits {
  bool users = true;  // and admins
  bool workers = true;
};

// Makes gRPC's credentials for TLS 1.2 and 1.3 with the files that `tls` has published. Every client must
// show a certificate; one that is not admitted is refused in the handshake, before any HTTP/2. It does not
// learn why; the log has the reason.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<const tls::ServerTls> tls,
                                                        Admits admits,
                                                        std::shared_ptr<TurnedAway> turned_away);

}  // namespace tandem::controller
