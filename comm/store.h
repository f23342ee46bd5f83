#pragma once

#include <string>

#include "absl/time/time.h"

namespace tandem::comm {

// The rendezvous of one attempt: write-once set, blocking get. In the trainer it goes through the worker's
// socket; in tests it is a map. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  // Setting a key again to the same value is allowed. Throws CommError.
  virtual void Set(const std::string& key, const std::string& value) = 0;

  // Blocks until the key is there. Throws CommError, naming the key, where it is not there in time.
  // `patience` goes by a clock that nobody sets.
  virtual std::string Get(const std::string& key, absl::Duration patience) = 0;
};

}  // namespace tandem::comm
