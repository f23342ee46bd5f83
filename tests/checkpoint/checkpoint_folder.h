// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/verify.h"
#include "tests/checkpoint/elements_of.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::checkpoint {

// A checkpoint directory of its own, and a state of three arrays to save there and load from.

inline constexpr int64_t kElements[] = {1000, 64, 7};
inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kFloat};

// Returns the whole i-th array at a step.
inline at::Tensor Whole(int64_t step, int i) {
  return at::arange(kElements[i], kTypes[i]).mul(0.37).add(static_cast<double>(step * 1000 + i));
}

// Returns a rank's shards of the three arrays: equal parts, rounded up, so that the last ranks may hold
// nothing.
struct RankState {
  RankState(int rank, int ranks) {
    for (int i = 0; i < 3; ++i) {
      const int64_t shard = (kElements[i] + ranks - 1) / ranks;
      begins[i] = std::min(kElements[i], rank * shard);
      tensors[i] = at::zeros({std::min(kElements[i], (rank + 1) * shard) - begins[i]}, kTypes[i]);
    }
  }
  void Set(int64_t step) {
    for (int i = 0; i < 3; ++i) {
      tensors[i].copy_(Whole(step, i).narrow(0, begins[i], tensors[i].numel()));
    }
  }
  bool Is(int64_t step) const {
    for (int i = 0; i < 3; ++i) {
      if (!at::equal(tensors[i], Whole(step, i).narrow(0, begins[i], tensors[i].numel()))) {
        return false;
      }
    }
    return true;
  }
  std::vector<Shard> shards() const {
    std::vector<Shard> result;
    for (int i = 0; i < 3; ++i) {
      result.push_back({.name = "array" + std::to_string(i),
                        .shape = {kElements[i]},
                        .begin = begins[i],
                        .data = ElementsOf(tensors[i])});
    }
    return result;
  }

  at::Tensor tensors[3];
  int64_t begins[3] = {};
};

inline Info InfoOf(int64_t step, int attempt = 1) {
  return {.step = step,
          .attempt = attempt,
          .job = "0123456789ab",
          .spec_digest = "spec",
          .parameters_digest = "parameters"};
}

inline Owner OwnerOf(const Info& info) {
  return {.job = info.job, .name = info.job + "-name", .attempt = info.attempt, .host = "here"};
}

// Creates the folder and finds it, as a job does when it starts.
inline JobFolder FolderAt(const std::string& directory) {
  std::filesystem::create_directories(directory);
  const absl::StatusOr<JobFolder> found = FindJobFolder(platform::SystemFiles(), directory);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.value_or(JobFolder());
}

// By rank, the Files of ranks that do not use SystemFiles().
using FilesOfRanks = std::map<int, platform::Files*>;

inline platform::Files& FilesOf(const FilesOfRanks& files, const comm::Communicator& comm) {
  const auto own = files.find(comm.rank());
  return own == files.end() ? platform::SystemFiles() : *own->second;
}

// Returns the steps that `ranks` ranks find to be whole when a job starts. `reasons` gets the reasons for the
// other steps.
inline WholeSteps WholeStepsOf(const std::string& directory, int ranks, const FilesOfRanks& files = {},
                               std::map<int64_t, std::string>* reasons = nullptr) {
  std::vector<WholeSteps> found(static_cast<size_t>(ranks));
  std::vector<std::map<int64_t, std::string>> reasons_of(static_cast<size_t>(ranks));
  comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
    found[static_cast<size_t>(comm.rank())] =
        FindWholeSteps(FilesOf(files, comm), comm, directory, [&](int64_t step, const std::string& reason) {
          if (!reason.empty()) {
            reasons_of[static_cast<size_t>(comm.rank())][step] = reason;
          }
        });
  });
  for (size_t rank = 0; rank < found.size(); ++rank) {
    EXPECT_EQ(found[rank], found[0]);
    EXPECT_EQ(reasons_of[rank], reasons_of[0]);
  }
  if (reasons != nullptr) {
    *reasons = reasons_of[0];
  }
  return found[0];
}

// Collective. Saves a rank's shards, while no other checkpoint is known to be whole.
inline Saved SaveShards(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                        int64_t step, const std::vector<Shard>& shards) {
  WholeSteps whole;
  return Save(files, comm, FolderAt(directory), /*keep=*/10, OwnerOf(InfoOf(step)), InfoOf(step), shards,
              whole);
}

// Collective. Saves a rank's shards of the state of info.step.
inline Saved SaveShare(platform::Files& files, comm::Communicator& comm, const JobFolder& folder, int keep,
                       const Info& info, WholeSteps& whole, const OnCommitted& committed = {}) {
  RankState state(comm.rank(), comm.size());
  state.Set(info.step);
  return Save(files, comm, folder, keep, OwnerOf(info), info, state.shards(), whole, committed);
}

// `whole` has the steps that rank 0 knows to be whole; if null, those that a job finds which starts now.
inline Saved SaveIn(platform::Files& files, const JobFolder& folder, int ranks, int64_t step, int keep = 10,
                    int attempt = 1, WholeSteps* whole = nullptr) {
  WholeSteps found = WholeStepsOf(folder.path, 1);
  std::vector<Saved> saved(static_cast<size_t>(ranks));
  comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
    WholeSteps unused;
    saved[static_cast<size_t>(comm.rank())] = SaveShare(files, comm, folder, keep, InfoOf(step, attempt),
                                                        comm.rank() != 0   ? unused
                                                        : whole != nullptr ? *whole
                                                                           : found);
  });
  for (const Saved& other : saved) {
    EXPECT_EQ(other.path, saved[0].path);
    EXPECT_EQ(other.bytes, saved[0].bytes);
    EXPECT_EQ(other.manifest_digest, saved[0].manifest_digest);
  }
  return saved[0];
}

// Saves as a job that has just started.
inline Saved SaveOn(platform::Files& files, const std::string& directory, int ranks, int64_t step,
                    int keep = 10, int attempt = 1, WholeSteps* whole = nullptr) {
  return SaveIn(files, FolderAt(directory), ranks, step, keep, attempt, whole);
}

// Saves on one rank.
inline void LoadAlone(platform::Files& files, const std::string& path, const std::vector<Shard>& shards) {
  comm::RunThreadRanks(
      1, [&](comm::Communicator& comm) { Load(files, comm, path, shards, [](const WorkProgress&) {}); });
}

// Returns whether each of `ranks` ranks loads the state of `step`.
inline bool LoadsAs(const std::string& path, int ranks, int64_t step) {
  std::atomic<bool> same = true;
  comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
    RankState state(comm.rank(), ranks);
    Load(platform::SystemFiles(), comm, path, state.shards(), [](const WorkProgress&) {});
    if (!state.Is(step)) {
      same = false;
    }
  });
  return same;
}

// Returns what() of the exception that `call` throws, or the empty string if it throws none.
template <typename Error = CheckpointError, typename Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string ReadAll(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void WriteAll(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class CheckpointTest : public testing::Test {
 protected:
  std::string Path(int64_t step) const { return absl::StrCat(directory_, "/step-", step); }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Returns the newest checkpoint as each of `ranks` ranks finds it.
  Found Newest(int ranks = 2, const FilesOfRanks& files = {}) {
    skipped_.clear();
    std::vector<Found> found(static_cast<size_t>(ranks));
    comm::RunThreadRanks(ranks, [&](comm::Communicator& comm) {
      found[static_cast<size_t>(comm.rank())] =
          FindNewest(FilesOf(files, comm), comm, directory_, /*after=*/-1,
                     {.skipped =
                          [&](const std::string& path, const std::string& reason) {
                            EXPECT_EQ(comm.rank(), 0);
                            skipped_.push_back(
                                absl::StrCat(std::filesystem::path(path).filename().string(), ": ", reason));
                          },
                      .verified = [](const WorkProgress&) {}});
    });
    for (const Found& other : found) {
      EXPECT_EQ(other.path, found[0].path);
      EXPECT_EQ(other.info.step, found[0].info.step);
    }
    return found[0];
  }

  platform::Files& files_ = platform::SystemFiles();
  const platform::TemporaryFolder temporary_;
  const std::string root_ = temporary_.path();
  const std::string directory_ = root_ + "/run";
  std::vector<std::string> skipped_;
};

}  // namespace tandem::checkpoint
