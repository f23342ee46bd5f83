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

// The key-value spaces, one per attempt, through which ranks find each other. A key is set once; a Get is
// answered when the key is set. Never durable: workers send their ranks' values again after each Welcome. Not
// thread-safe.
class Rendezvous {
 public:
  // A value, and the workers that have waited for it.
  struct Answer {
    v1::KvValue value;
    std::vector<std::string> workers;
  };

  // The most bytes that may be stored for one worker and attempt: values that it set, and keys that it waits
  // for. Each rank waits for one key at a time, and sets about 100 bytes per rank of each of its groups.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // Sets a key for `worker`, and fills `answer` if workers have waited for it; otherwise leaves `answer` as
  // it is. The first value of a key stays; returns false if the key had a different value. ResourceExhausted
  // if the worker would exceed kMostBytes.
  absl::StatusOr<bool> Set(const v1::KvSet& set, const std::string& worker, Answer& answer);

  // Returns true and fills `value` if the key is set; otherwise a later Set of the key will answer `worker`.
  // ResourceExhausted as in Set.
  absl::StatusOr<bool> Get(const v1::KvGet& get, const std::string& worker, v1::KvValue& value);

  // Forgets which keys a worker waits for. Call when it disconnects; it asks again when it reconnects.
  void Forget(const std::string& worker);

  // Drops the spaces of attempts that are no longer live, or whose ranks have all been ready.
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
