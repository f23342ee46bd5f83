// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::platform {

// Reads a file of /proc or of a control group, whose size the kernel does not report. Empty if it cannot be
// read.
std::string ReadKernelFile(const std::string& path);

// Reads the number after `name` in such a file of lines "NAME NUMBER", such as memory.events. nullopt if it
// has no such line.
std::optional<int64_t> ReadCounter(const std::string& path, absl::string_view name);

// The control group (v2) of this process, "/a/b" below the mount point; empty if it is in none.
std::string OwnGroup(const std::string& root = "");

// What the control groups (v1 and v2) of this process, and those above them, allow it, for example in a
// container. `root` is put before /proc and /sys, for tests.
struct GroupLimits {
  double processors = 0;     // a quota, such as 2.5; 0: no limit
  int64_t memory_bytes = 0;  // 0: no limit
};
GroupLimits ReadGroupLimits(const std::string& root = "");

// How many processors this process may use at a time: those of its affinity, at most the quota; 1 at least.
int NumProcessors();

// The bytes of the machine's memory, at most those of the limit.
int64_t MemoryBytes();

// The bytes of memory that this process could still take: what the machine has available (MemAvailable), at
// most what the control groups' limits leave beside what their processes hold.
int64_t AvailableMemoryBytes(const std::string& root = "");

// How many processes of this process's control group the kernel has killed for lack of memory, in the group
// or on the machine; without such a group, how many of the machine. 0 if the kernel does not report it.
int64_t OutOfMemoryKills(const std::string& root = "");

}  // namespace tandem::platform
