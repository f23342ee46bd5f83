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

// Two jobs, or two attempts of one, in a directory that each takes for its own.
class OwnedFolderTest : public CheckpointTest {
 protected:
  static Owner Mine() { return OwnerOf(InfoOf(0)); }
  static Owner Other() { return OwnerOf(Of("other", 0)); }

  // From its owner, once that one is taken for dead, as a job that starts: what the other has left is
  // removed.
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
  // From an owner that is alive, as a program without manners would.
  void Steal(const std::string& job) {
    const std::string temporary = root_ + "/stolen";  // its owner must not see the half of it
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
