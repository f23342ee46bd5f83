// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/communicator_factory.h"
#include "tests/comm/thread_communicator.h"

namespace tandem::comm {

// Where ranks that are threads of this process join their groups. A group is known by its prefix;
// the member that comes first makes it, for all, and no member waits. Thread-safe.
class ThreadGroups {
 public:
  explicit ThreadGroups(WaitUntil wait_until = {});
  ~ThreadGroups();
  ThreadGroups(const ThreadGroups&) = delete;
  ThreadGroups& operator=(const ThreadGroups&) = delete;

  // For one rank; the groups outlive it.
  std::unique_ptr<CommunicatorFactory> MakeFactory();

 private:
  class Factory;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::comm
