// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "comm/communicator_factory.h"
#include "tests/comm/thread_communicator.h"

namespace tandem::comm {

// The groups of ranks that are threads of this process. A group is identified by its prefix. The first member
// to join makes it for all members; no member waits. Thread-safe.
class ThreadGroups {
 public:
  explicit ThreadGroups(WaitUntil wait_until = {});
  ~ThreadGroups();
  ThreadGroups(const ThreadGroups&) = delete;
  ThreadGroups& operator=(const ThreadGroups&) = delete;

  // Makes the factory of one rank. This object must outlive it.
  std::unique_ptr<CommunicatorFactory> MakeFactory();

 private:
  class Factory;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::comm
