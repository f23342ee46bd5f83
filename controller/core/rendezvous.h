// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/core/state.h"

namespace tandem::controller {

// The key-value spaces through which the ranks of an attempt find each other. A key is set once; a get is
// answered when the key is set. Never durable: workers resend their ranks' values after each Welcome. Not
// thread-safe.
class Rendezvous {
 public:
  // A value, and the workers that wait for it.
  struct Answer {
    v1::KvValue value;
    std::vector<std::string> workers;
  };

  // The most bytes that may be stored for one worker and attempt: values that it set, and keys that it waits
  // for. Each rank waits for one key at a time, and sets about 100 bytes per rank of each of its groups.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // Sets a value for `worker`. The first value of a key stays; returns false if the key had a different
  // value. ResourceExhausted if the worker would exceed kMostBytes.
  absl::StatusOr<bool> Set(const v1::KvSet& set, const std::string& worker, Answer& answer);

  // Returns true and fills `value` if the key is set; otherwise the Set of the key will answer `worker`.
  // ResourceExhausted as above.
  absl::StatusOr<bool> Get(const v1::KvGet& get, const std::string& worker, v1::KvValue& value);

  // Forgets what a worker that is away waits for; it asks again when it returns.
  void Forget(const std::string& worker);

  // Drops the spaces of attempts that are not live any more, or whose ranks have all been ready.
  void Retain(const State& state);

 private:
  struct Space {
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<std::string>> waiting;  // key → workers
    std::map<std::string, size_t> kept;                    // worker → bytes
  };
  std::map<AttemptKey, Space> spaces_;
};

}  // namespace tandem::controller
