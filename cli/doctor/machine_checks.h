// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace tandem::cli {

// The programs beside this one: whether they are there, start, and are of this build.
std::vector<Finding> CheckPrograms(const std::string& folder);

// NVIDIA's driver and the libraries of the trainer for GPUs, NCCL among them. A machine without a driver
// trains on its processors, which is well.
std::vector<Finding> CheckGpus(const std::string& folder);

// Shared memory, which ranks on one machine use; descriptors; whether something keeps the clock.
std::vector<Finding> CheckLimits();

// "580.65.06" from the text of /proc/driver/nvidia/version; empty where it says none.
std::string DriverVersion(const std::string& text);

// Library → path, as the dynamic loader lists them for a program; an empty path: not found.
std::map<std::string, std::string> LoadedLibraries(const std::string& text);

// Of a driver of that version: CUDA 13 needs 580.
Finding CheckDriver(const std::string& version);

// Of the NCCL at `path`, by its ncclGetVersion: exchanges between experts need 2.28.
Finding CheckNcclVersion(int version, const std::string& path);

}  // namespace tandem::cli
