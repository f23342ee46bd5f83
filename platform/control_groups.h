// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::platform {

// The text of a file of /proc or of a control group, whose size the kernel does not tell. Empty where it
// cannot be read.
std::string ReadKernelFile(const std::string& path);

// The number behind `name` in such a file of lines "NAME NUMBER", as memory.events is. None: it has no such
// line.
std::optional<int64_t> ReadCounter(const std::string& path, absl::string_view name);

// The control group (v2) of this process, "/a/b" below what is mounted; empty where it is in none.
std::string OwnGroup(const std::string& root = "");

// What the control groups (v1 and v2) of this process and all above them leave it, as a container or a unit
// of systemd is limited. `root` is put before /proc and /sys, for tests.
struct GroupLimits {
  double processors = 0;     // a quota, such as 2.5; 0: none
  int64_t memory_bytes = 0;  // 0: none
};
GroupLimits ReadGroupLimits(const std::string& root = "");

// How many processors this process may use at a time: those of its affinity, at most the quota; 1 at least.
int NumProcessors();

// The bytes of the machine's memory, at most those of the limit.
int64_t MemoryBytes();

// The bytes of memory that this process could still take: what the machine has available (MemAvailable), at
// most what the control groups' limits leave beside what their processes hold.
int64_t AvailableMemoryBytes(const std::string& root = "");

// How many processes of this one's control group the kernel has killed because there was no memory left, in
// the group or on the machine; where there is no such group, how many of the machine. 0 where it does not
// say.
int64_t OutOfMemoryKills(const std::string& root = "");

}  // namespace tandem::platform
