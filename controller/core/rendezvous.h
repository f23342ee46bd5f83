// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

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

  // The first value of a key stays; false where another one was there already.
  bool Set(const v1::KvSet& set, Answer& answer);

  // The value at once, or `worker` is answered by the Set that brings it. True where there is one.
  bool Get(const v1::KvGet& get, const std::string& worker, v1::KvValue& value);

  // A worker that is away asks again when it returns.
  void Forget(const std::string& worker);

  // Drops the spaces of attempts that are not live any more.
  void Retain(const State& state);

 private:
  struct Space {
    std::map<std::string, std::string> values;
    std::map<std::string, std::set<std::string>> waiting;  // key → workers
  };
  std::map<AttemptKey, Space> spaces_;
};

}  // namespace tandem::controller
