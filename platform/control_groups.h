// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::platform {

// Returns the content of a file in /proc or /sys, for which stat(2) reports no size. Empty if it cannot be
// read.
std::string ReadKernelFile(const std::string& path);

// Reads the number of the line "NAME NUMBER" in a file of /proc or /sys such as memory.events. nullopt if the
// file has no line with that name.
std::optional<int64_t> ReadCounter(const std::string& path, absl::string_view name);

// The path of this process's control group (v2) below the mount point, such as "/a/b"; empty if the process
// is in none.
std::string OwnGroup(const std::string& root = "");

// The limits of this process by its control groups (v1 and v2) and their ancestors, for example in a
// container. Tests prefix the paths /proc and /sys with `root`.
struct GroupLimits {
  double processors = 0;     // the CPU quota, such as 2.5; 0: no limit
  int64_t memory_bytes = 0;  // 0: no limit
};
GroupLimits ReadGroupLimits(const std::string& root = "");

// How many processors this process may use at a time: the smaller of its affinity and its quota, at least 1.
int NumProcessors();

// The memory that this process may use: the smaller of the machine's and the control groups' limit.
int64_t MemoryBytes();

// The bytes of memory that this process could still allocate: the machine's MemAvailable or, if that is less,
// what the limit of a control group leaves beside the memory of its processes.
int64_t AvailableMemoryBytes(const std::string& root = "");

// How many processes the kernel has killed for lack of memory: in this process's control group, or on the
// whole machine if no group counts them. 0 if the kernel does not report a count.
int64_t OutOfMemoryKills(const std::string& root = "");

}  // namespace tandem::platform
