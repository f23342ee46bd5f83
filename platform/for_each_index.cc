// SPDX-License-Identifier: Apache-2.0
#include "platform/for_each_index.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace tandem::platform {

void ForEachIndex(size_t count, int most_threads, const std::function<void(size_t index)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<std::exception_ptr> errors(count);
  const auto run = [&] {
    // Indices are taken in order, so all indices below one that fails have been taken before it.
    for (size_t index = next++; index < count; index = next++) {
      try {
        work(index);
      } catch (...) {
        errors[index] = std::current_exception();
        failed = true;
      }
      if (failed) {
        return;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    const size_t wanted = std::min(count, static_cast<size_t>(most_threads));
    for (bool allowed = true; allowed && threads.size() + 1 < wanted;) {
      try {
        threads.emplace_back(run);
      } catch (const std::system_error&) {
        allowed = false;  // the running threads, at least this one, do all the work
      }
    }
    run();
  }
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }
}

}  // namespace tandem::platform
