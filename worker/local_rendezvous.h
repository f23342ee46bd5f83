// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::worker {

// The part of an attempt's rendezvous that this worker knows: keys that its ranks have set or are waiting
// for. Ranks find each other by the values of such keys; the controller has them all.
struct LocalRendezvous {
  struct Value {
    std::string bytes;
    int rank = -1;  // the local rank that set the value; -1: the controller sent it
  };

  // Stores a value, if the key has none yet, and answers the ranks that wait for it.
  void Learn(const std::string& key, Value value);
  // Answers `rank` with the value of `key`, now or once it is known.
  void Want(int rank, const std::string& key);
  // Removes a rank that is gone from all waiting lists.
  void Forget(int rank);
  // Marks all local keys as unsent and all awaited keys as unasked, for a new session.
  void SendAgain();

  std::map<std::string, Value> values;
  std::vector<std::string> unsent;                   // keys set by local ranks, not yet sent in this session
  std::map<std::string, std::set<int>> waiting;      // key → local ranks that wait for it
  std::vector<std::string> unasked;                  // keys of `waiting` not yet requested in this session
  std::vector<std::pair<int, std::string>> answers;  // (rank, key): to be sent to the rank
};

}  // namespace tandem::worker
