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

// The key-value spaces through which the ranks of an attempt find each other: write-once set, get answered
// when the key is set. Never durable; workers bring their ranks' values back in Hello. Not thread-safe.
class Rendezvous {
 public:
  // A value, and the workers that wait for it.
  struct Answer {
    v1::KvValue value;
    std::vector<std::string> workers;
  };

  // What one worker may have kept for an attempt: values that it set, and keys that it waits for. Its ranks
  // wait for a key each, and set about 100 bytes for every rank of every group that they are in.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // Of `worker`. The first value of a key stays; false where another one was there already.
  // ResourceExhausted where that would be more than kMostBytes.
  absl::StatusOr<bool> Set(const v1::KvSet& set, const std::string& worker, Answer& answer);

  // The value at once, or `worker` is answered by the Set that brings it. True where there is one.
  // ResourceExhausted as above.
  absl::StatusOr<bool> Get(const v1::KvGet& get, const std::string& worker, v1::KvValue& value);

  // A worker that is away asks again when it returns.
  void Forget(const std::string& worker);

  // Drops the spaces of attempts that are not live any more.
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
