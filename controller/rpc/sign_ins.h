// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/rpc/callers.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "tls/revoked_list.h"

namespace tandem::controller {

// The users that are signed in to the page. A caller that is identified by its connection gets a code; a
// browser exchanges the code for a session, and calls with the session count as the caller's. Codes and
// sessions are 128 random bits as 32 hexadecimal digits. Only their SHA-256 is kept and compared, so neither
// the memory nor the time of a lookup reveals them. They end with the process. Thread-safe.
class SignIns {
 public:
  static constexpr absl::Duration kCodeLife = absl::Minutes(1);
  static constexpr absl::Duration kSessionLife = absl::Hours(8);
  // The most codes and sessions of one identity; beyond them the oldest ends.
  static constexpr size_t kMostOfOne = 16;

  // Both must outlive it. Until SetPage there is no page.
  SignIns(platform::Random& random, const platform::Clock& clock) : random_(random), clock_(clock) {}

  // Sets the address of the page, "127.0.0.1:9464", or why users cannot sign in to it.
  void SetPage(absl::StatusOr<std::string> page) ABSL_LOCKS_EXCLUDED(mu_);

  struct Code {
    std::string secret;  // may be used once, within kCodeLife
    std::string page;    // of SetPage
  };
  // Makes a code. FailedPrecondition if users cannot sign in; PermissionDenied if the caller is in the last
  // list of EndRevoked, which its connection may outlive for a moment.
  absl::StatusOr<Code> Issue(const Caller& caller) ABSL_LOCKS_EXCLUDED(mu_);

  struct Session {
    std::string secret;
    Caller caller;
    absl::Duration life;  // kSessionLife, or less if the caller's certificate expires earlier
  };
  // Exchanges a code, which is then used up, for a session. nullopt if the code was used before, has expired
  // or never existed.
  std::optional<Session> Redeem(const std::string& code) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the caller of a session; nullopt if it has ended or never existed.
  std::optional<Caller> Find(const std::string& session) const ABSL_LOCKS_EXCLUDED(mu_);

  // Ends a session, and returns its caller.
  std::optional<Caller> End(const std::string& session) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the codes and sessions of callers whose certificate is in the list.
  void EndRevoked(const tls::RevokedList& revoked) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    Caller caller;
    bool is_code = false;
    absl::Time until;
    uint64_t number = 0;  // rises
  };

  // Adds an entry, and returns its secret.
  std::string Add(const Caller& caller, bool is_code, absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes an entry, and returns its caller.
  std::optional<Caller> Take(const std::string& secret, bool is_code) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  platform::Random& random_;
  const platform::Clock& clock_;
  mutable absl::Mutex mu_;
  absl::StatusOr<std::string> page_ ABSL_GUARDED_BY(mu_) = absl::FailedPreconditionError(
      "this controller has no page to sign in to; start it with --metrics-listen 127.0.0.1:9464, or with "
      "--page on");
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  tls::RevokedList revoked_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);  // by the SHA-256 of the secret
};

}  // namespace tandem::controller
