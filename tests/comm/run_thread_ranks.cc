// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/run_thread_ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/comm/thread_communicator.h"

namespace tandem::comm {

void RunThreadRanks(int ranks, const std::function<void(int rank)>& rank_main) {
  std::mutex mu;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          rank_main(rank);
        } catch (...) {
          const std::lock_guard lock(mu);
          if (first == nullptr) {
            first = std::current_exception();
          }
        }
      });
    }
  }
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

void RunThreadRanks(int ranks, const std::function<void(Communicator& comm)>& rank_main) {
  const auto communicators = MakeThreadCommunicators("test", ranks);
  std::mutex mu;
  std::exception_ptr first;
  RunThreadRanks(ranks, [&](int rank) {
    Communicator& comm = *communicators[static_cast<size_t>(rank)];
    try {
      rank_main(comm);
    } catch (...) {
      {
        // Before Abort: the others' errors are consequences.
        const std::lock_guard lock(mu);
        if (first == nullptr) {
          first = std::current_exception();
        }
      }
      comm.Abort();
    }
  });
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

}  // namespace tandem::comm
