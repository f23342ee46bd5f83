// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/work_together.h"

namespace tandem::trainer {

// Shows that the ranks make progress while they read or remove a checkpoint: an OnWorkProgress
// (checkpoint/work_together.h).
class ShownProgress {
 public:
  // If `logs`, the log gets a line with `what` for each tenth, unless everything is done between two of the
  // ranks' meetings. `unit` is the unit of the amounts, "bytes" or "files". `moved` is called every time.
  ShownProgress(bool logs, std::string what, std::string unit, std::function<void()> moved);

  void operator()(const checkpoint::WorkProgress& progress);

 private:
  bool logs_;
  std::string what_;
  std::string unit_;
  std::function<void()> moved_;
  std::string path_;
  int64_t tenth_ = 0;  // tenths of the path that were logged
};

}  // namespace tandem::trainer
