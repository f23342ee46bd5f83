// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/owner.h"
#include "checkpoint/remove_together.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {

inline constexpr char kJob[] = "0123456789ab";  // of InfoOf

// Two jobs, or two attempts of one job, that use one directory.
class OwnedFolderTest : public CheckpointTest {
 protected:
  static Owner Mine() { return OwnerOf(InfoOf(0)); }
  static Owner Other() { return OwnerOf(Of("other", 0)); }

  // Takes the directory, like a job that starts, from an owner that counts as dead, and removes what that
  // owner has left.
  absl::Status Take(
      const Owner& self, const std::function<void()>& pause = [] {}) {
    return Take(files_, self, pause);
  }
  absl::Status Take(
      platform::Files& files, const Owner& self, const std::function<void()>& pause = [] {}) {
    std::filesystem::create_directories(directory_);
    const absl::StatusOr<std::vector<std::string>> doomed = TakeOwnership(files, directory_, self, pause);
    if (doomed.ok()) {
      comm::RunThreadRanks(1, [&](comm::Communicator& comm) {
        RemoveTogether(files, comm, *doomed, [](const WorkProgress&) {});
      });
    }
    return doomed.status();
  }
  // Takes the directory from an owner that is alive, like a program that breaks the rules.
  void Steal(const std::string& job) {
    const std::string temporary = root_ + "/stolen";  // the owner must not read a half-written file
    WriteAll(temporary, absl::StrCat(R"({"job": ")", job, R"(", "name": "", "attempt": 1, "host": ""})"));
    std::filesystem::rename(temporary, directory_ + "/.owner");
  }

  static Info Of(const std::string& job, int64_t step) {
    Info info = InfoOf(step);
    info.job = job;
    return info;
  }
};

}  // namespace tandem::checkpoint
