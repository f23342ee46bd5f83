// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/work_together.h"

namespace tandem::trainer {

// Shows that the ranks move while they read a checkpoint: an OnReadProgress (checkpoint/work_together.h).
class ShownProgress {
 public:
  // logs: the log gets a line for each tenth, with `what`, unless everything is read between two of the
  // ranks' meetings. moved: called every time.
  ShownProgress(bool logs, std::string what, std::function<void()> moved);

  void operator()(const checkpoint::ReadProgress& progress);

 private:
  bool logs_;
  std::string what_;
  std::function<void()> moved_;
  std::string path_;
  int64_t tenth_ = 0;  // of the path, that the log has
};

}  // namespace tandem::trainer
