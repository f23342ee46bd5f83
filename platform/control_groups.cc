// SPDX-License-Identifier: Apache-2.0
#include "platform/control_groups.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::platform {
namespace {

// In cgroups v1 a limit at least as large means that there is no limit.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// Returns the numbers of a file with one line, up to "max" or any other word that is not a number.
std::vector<int64_t> ReadNumbers(const std::string& path) {
  std::vector<int64_t> out;
  for (const absl::string_view word :
       absl::StrSplit(ReadKernelFile(path), absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(word, &number)) {
      break;
    }
    out.push_back(number);
  }
  return out;
}

// A hierarchy of groups to which this process belongs.
struct Membership {
  std::string mount;
  std::string path;  // "/a/b"; a container may see only its root
  bool is_v2 = false;
};

std::vector<Membership> ReadMemberships(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  std::vector<Membership> out;
  for (const absl::string_view line :
       absl::StrSplit(ReadKernelFile(root + "/proc/self/cgroup"), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) {
      continue;
    }
    if (fields[1].empty()) {
      out.push_back({mounts, fields[2], /*is_v2=*/true});
    }
    for (const absl::string_view controller : absl::StrSplit(fields[1], ',', absl::SkipEmpty())) {
      if (controller == "cpu" || controller == "memory") {
        out.push_back({absl::StrCat(mounts, "/", controller), fields[2]});
      }
    }
  }
  return out;
}

// Calls `look` with the folder of each group, from that of the process up to the mounted root.
void ForEachLevel(const Membership& membership, const std::function<void(const std::string&)>& look) {
  std::string path = membership.path == "/" ? "" : membership.path;
  while (true) {
    look(membership.mount + path);
    if (path.empty()) {
      return;
    }
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

template <typename Number>
void Lower(Number limit, Number& lowest) {
  if (limit > 0 && (lowest == 0 || limit < lowest)) {
    lowest = limit;
  }
}

}  // namespace

std::string ReadKernelFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> ReadCounter(const std::string& path, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(ReadKernelFile(path), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t number = 0;
    // The kernel may align the number and append a unit.
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &number)) {
      return number;
    }
  }
  return std::nullopt;
}

std::string OwnGroup(const std::string& root) {
  for (const Membership& membership : ReadMemberships(root)) {
    if (membership.is_v2) {
      return membership.path;
    }
  }
  return "";
}

GroupLimits ReadGroupLimits(const std::string& root) {
  GroupLimits out;
  const auto lower_quota = [&out](const std::vector<int64_t>& quota, const std::vector<int64_t>& period) {
    if (quota.size() == 1 && period.size() == 1 && quota[0] > 0 && period[0] > 0) {
      Lower(static_cast<double>(quota[0]) / static_cast<double>(period[0]), out.processors);
    }
  };
  for (const Membership& membership : ReadMemberships(root)) {
    ForEachLevel(membership, [&](const std::string& folder) {
      if (membership.is_v2) {
        const std::vector<int64_t> cpu = ReadNumbers(folder + "/cpu.max");  // "200000 100000", "max 100000"
        if (cpu.size() == 2) {
          lower_quota({cpu[0]}, {cpu[1]});
        }
      } else {
        lower_quota(ReadNumbers(folder + "/cpu.cfs_quota_us"), ReadNumbers(folder + "/cpu.cfs_period_us"));
      }
      const std::vector<int64_t> memory =
          ReadNumbers(folder + (membership.is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      if (memory.size() == 1 && memory[0] < kNoLimit) {
        Lower(memory[0], out.memory_bytes);
      }
    });
  }
  return out;
}

int NumProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affine = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = ReadGroupLimits().processors;
  return quota > 0 ? std::clamp(static_cast<int>(quota), 1, affine) : affine;
}

int64_t MemoryBytes() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const int64_t limit = ReadGroupLimits().memory_bytes;
  return limit > 0 ? std::min(machine, limit) : machine;
}

int64_t AvailableMemoryBytes(const std::string& root) {
  constexpr int64_t kKilobyte = 1024;
  int64_t available = ReadCounter(root + "/proc/meminfo", "MemAvailable:").value_or(0) * kKilobyte;
  for (const Membership& membership : ReadMemberships(root)) {
    ForEachLevel(membership, [&](const std::string& folder) {
      const std::vector<int64_t> limit =
          ReadNumbers(folder + (membership.is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      // The kernel drops files from its cache under pressure, so they do not count.
      const std::optional<int64_t> held =
          ReadCounter(folder + "/memory.stat", membership.is_v2 ? "anon" : "total_rss");
      if (limit.size() == 1 && limit[0] > 0 && limit[0] < kNoLimit) {
        available = std::min(available, std::max(int64_t{0}, limit[0] - held.value_or(0)));
      }
    });
  }
  return available;
}

int64_t OutOfMemoryKills(const std::string& root) {
  std::optional<int64_t> nearest;
  for (const Membership& membership : ReadMemberships(root)) {
    ForEachLevel(membership, [&](const std::string& folder) {
      if (!nearest.has_value()) {
        nearest =
            ReadCounter(folder + (membership.is_v2 ? "/memory.events" : "/memory.oom_control"), "oom_kill");
      }
    });
  }
  return nearest.has_value() ? *nearest : ReadCounter(root + "/proc/vmstat", "oom_kill").value_or(0);
}

}  // namespace tandem::platform
