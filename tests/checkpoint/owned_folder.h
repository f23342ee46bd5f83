// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/owner.h"
#include "tests/checkpoint/checkpoint_folder.h"

namespace tandem::checkpoint {

inline constexpr char kJob[] = "0123456789ab";  // of InfoOf

// Two jobs, or two attempts of one, in a directory that each takes for its own.
class OwnedFolderTest : public CheckpointTest {
 protected:
  static Owner Mine() { return OwnerOf(InfoOf(0)); }
  static Owner Other() { return OwnerOf(Of("other", 0)); }

  // From its owner, once that one is taken for dead.
  absl::Status Take(const Owner& self) {
    return TakeOwnership(files_, directory_, self, [] {});
  }
  // From an owner that is alive, as a program without manners would.
  void Steal(const std::string& job) {
    WriteAll(directory_ + "/.owner",
             absl::StrCat(R"({"job": ")", job, R"(", "name": "", "attempt": 1, "host": ""})"));
  }

  static Info Of(const std::string& job, int64_t step) {
    Info info = InfoOf(step);
    info.job = job;
    return info;
  }
};

}  // namespace tandem::checkpoint
