// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tandem::cli {

// What a check of this machine found.
struct Finding {
  enum class Level { kOk, kWarn, kFail };
  Level level = Level::kOk;
  std::string subject;  // "driver"
  std::string text;     // what was found; unless kOk, also what follows from it and what to do
};

// In machine_checks.cc:

// Checks that the programs beside this one exist, start, and are of this build.
std::vector<Finding> CheckPrograms(const std::string& folder);

// Checks NVIDIA's driver and the libraries of the trainer for GPUs, NCCL among them. No driver is kOk: ranks
// then run on processors.
std::vector<Finding> CheckGpus(const std::string& folder);

// Checks the size of shared memory, through which ranks on one machine communicate, the limit of open
// descriptors, and that the clock is synchronized.
std::vector<Finding> CheckLimits();

// Returns the version, "580.65.06", in the text of /proc/driver/nvidia/version; empty if there is none.
std::string DriverVersion(const std::string& text);

// Parses what the dynamic loader lists for a program: name of a library → its path, empty if it was not
// found.
std::map<std::string, std::string> LoadedLibraries(const std::string& text);

// Checks the version of a driver: CUDA 13 needs 580.
Finding CheckDriver(const std::string& version);

// Checks the version, by ncclGetVersion, of the NCCL at `path`: exchanges between experts need 2.28.
Finding CheckNcclVersion(int version, const std::string& path);

// In folder_checks.cc:

// Checks a folder in which Tandem keeps files: that it can be written, its free space, and how long a file
// takes to be durable. Leaves nothing behind.
std::vector<Finding> CheckDisk(const std::string& subject, const std::string& folder);

// Checks a folder of checkpoints or data that several machines share: what CheckDisk checks, that other
// machines can see its file system, and what checkpoints need: locks, and a rename that never replaces a
// file.
std::vector<Finding> CheckShared(const std::string& folder);

}  // namespace tandem::cli
