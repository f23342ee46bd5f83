// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::worker {

// The keys of one attempt through which its ranks find each other, as far as the ranks of this worker set
// them or wait for them. The rest of the space is the controller's.
struct LocalRendezvous {
  struct Value {
    std::string bytes;
    int rank = -1;  // the local rank that set it; -1: the controller sent it
  };

  // Takes a value. The first one of a key stays. Ranks that wait for it are answered.
  void Learn(const std::string& key, Value value);
  // Answers `rank` with the value, now or when it is known.
  void Want(int rank, const std::string& key);
  // A rank is gone, and waits for nothing.
  void Forget(int rank);
  // A new session has begun, which knows none of this.
  void SendAgain();

  std::map<std::string, Value> values;
  std::vector<std::string> unsent;                   // keys that were set here, not yet sent in this session
  std::map<std::string, std::set<int>> waiting;      // key → local ranks that want it
  std::vector<std::string> unasked;                  // keys of `waiting` not yet asked in this session
  std::vector<std::pair<int, std::string>> answers;  // rank, key: values known and wanted, not yet sent
};

}  // namespace tandem::worker
