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
  std::string text;     // what was found; unless it is well, what follows from it, and what to do
};

// machine_checks.cc

// Checks that the programs beside this one exist, start, and are of this build.
std::vector<Finding> CheckPrograms(const std::string& folder);

// Checks NVIDIA's driver and the libraries of the trainer for GPUs, NCCL among them. A machine without a
// driver trains on its processors, which is well.
std::vector<Finding> CheckGpus(const std::string& folder);

// Checks shared memory, which ranks on one machine use, descriptors, and that the clock is synchronized.
std::vector<Finding> CheckLimits();

// "580.65.06" from the text of /proc/driver/nvidia/version; empty if it names no version.
std::string DriverVersion(const std::string& text);

// Library → path, as the dynamic loader lists them for a program; an empty path: not found.
std::map<std::string, std::string> LoadedLibraries(const std::string& text);

// The finding about a driver of that version: CUDA 13 needs 580.
Finding CheckDriver(const std::string& version);

// The finding about the NCCL at `path`, by its ncclGetVersion: exchanges between experts need 2.28.
Finding CheckNcclVersion(int version, const std::string& path);

// folder_checks.cc

// Checks that a folder can hold what Tandem keeps: that it can be written, its space, and how long a file
// takes to be durable. Leaves nothing behind.
std::vector<Finding> CheckDisk(const std::string& subject, const std::string& folder);

// Checks the same of a folder for checkpoints or data that several machines share, that its file system can
// be shared, and that it has what checkpoints need: locks, and a rename that replaces nothing.
std::vector<Finding> CheckShared(const std::string& folder);

}  // namespace tandem::cli
