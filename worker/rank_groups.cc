// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_groups.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/control_groups.h"
#include "platform/log.h"

namespace tandem::worker {
namespace {

// The largest part of the group's memory that the daemon keeps for itself.
constexpr int64_t kMostReserve = int64_t{256} << 20;

bool WriteText(const std::string& path, const std::string& text) {
  const platform::Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  return file.get() >= 0 && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool MakeFolder(const std::string& path) { return mkdir(path.c_str(), 0755) == 0 || errno == EEXIST; }

// Returns the number in a file; nullopt if the file says "max" or does not exist.
std::optional<int64_t> NumberOfFile(const std::string& path) {
  int64_t number = 0;
  return absl::SimpleAtoi(platform::ReadKernelFile(path), &number) ? std::optional(number) : std::nullopt;
}

// Whether the group was given to this service: systemd marks the group of a unit, and the root that a
// container sees belongs to it.
bool IsGiven(const std::string& group, const std::string& path) {
  if (path == "/") {
    return true;
  }
  std::array<char, 8> value{};
  for (const char* const name : {"trusted.delegate", "user.delegate"}) {
    if (getxattr(group.c_str(), name, value.data(), value.size()) == 1 && value[0] == '1') {
      return true;
    }
  }
  return false;
}

// Returns this process and its ancestors.
std::set<int> OwnLine() {
  std::set<int> line;
  for (int pid = getpid(); pid > 0 && line.insert(pid).second;) {
    int parent = 0;
    for (const absl::string_view row :
         absl::StrSplit(platform::ReadKernelFile(absl::StrCat("/proc/", pid, "/status")), '\n')) {
      if (absl::StartsWith(row, "PPid:")) {
        const bool is_number = absl::SimpleAtoi(row.substr(5), &parent);
        parent = is_number ? parent : 0;
      }
    }
    pid = parent;
  }
  return line;
}

// Whether no process is in the group except this one and its ancestors.
bool IsAlone(const std::string& group) {
  const std::set<int> line = OwnLine();
  for (const absl::string_view word :
       absl::StrSplit(platform::ReadKernelFile(group + "/cgroup.procs"), '\n', absl::SkipEmpty())) {
    int pid = 0;
    if (!absl::SimpleAtoi(word, &pid) || !line.contains(pid)) {
      return false;
    }
  }
  return true;
}

// Moves all processes of a group. Repeats, because new ones may start meanwhile.
bool MoveProcesses(const std::string& from, const std::string& to) {
  constexpr int kMostPasses = 10;
  for (int pass = 0; pass < kMostPasses; ++pass) {
    const std::string processes = platform::ReadKernelFile(from + "/cgroup.procs");
    if (processes.empty()) {
      return true;
    }
    for (const absl::string_view process : absl::StrSplit(processes, '\n', absl::SkipEmpty())) {
      if (!WriteText(to + "/cgroup.procs", std::string(process)) && errno != ESRCH) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

RankGroup::RankGroup(RankGroups& groups, std::string folder, platform::Descriptor processes)
    : groups_(groups), folder_(std::move(folder)), processes_(std::move(processes)) {}

RankGroup::~RankGroup() {
  WriteText(folder_ + "/cgroup.kill", "1");
  groups_.Remove(folder_);
}

int64_t RankGroup::OutOfMemoryKills() const {
  return platform::ReadCounter(folder_ + "/memory.events", "oom_kill").value_or(0);
}

int64_t RankGroup::PeakBytes() const { return NumberOfFile(folder_ + "/memory.peak").value_or(0); }

std::unique_ptr<RankGroups> RankGroups::Make(const std::string& root) {
  const std::string path = platform::OwnGroup(root);
  if (path.empty()) {
    return nullptr;
  }
  const std::string group = absl::StrCat(root, "/sys/fs/cgroup", path == "/" ? "" : path);
  const std::vector<std::string> controllers =
      absl::StrSplit(platform::ReadKernelFile(group + "/cgroup.controllers"), absl::ByAnyChar(" \n"));
  struct stat status {};
  // The root group of the machine has no limit, and a worker must not divide it.
  const bool is_root_of_machine = stat((group + "/memory.max").c_str(), &status) != 0;
  if (is_root_of_machine ||
      std::find(controllers.begin(), controllers.end(), "memory") == controllers.end() ||
      !IsGiven(group, path) || !IsAlone(group)) {
    return nullptr;
  }
  const std::string own = group + "/worker";
  const std::string ranks = group + "/ranks";
  const bool moved = MakeFolder(own) && MoveProcesses(group, own) &&
                     WriteText(group + "/cgroup.subtree_control", "+memory") && MakeFolder(ranks) &&
                     WriteText(ranks + "/cgroup.subtree_control", "+memory");
  if (!moved) {
    const int error = errno;
    MoveProcesses(own, group);
    rmdir(ranks.c_str());
    rmdir(own.c_str());
    platform::Log(platform::LogLevel::kInfo,
                  "ranks have no control groups of their own: one without memory may take others along",
                  {{"group", group}, {"error", std::generic_category().message(error)}});
    return nullptr;
  }
  if (const std::optional<int64_t> limit = NumberOfFile(group + "/memory.max")) {
    WriteText(ranks + "/memory.max", absl::StrCat(*limit - std::min(kMostReserve, *limit / 8)));
  }
  std::error_code ignored;
  for (const auto& left :
       std::filesystem::directory_iterator(ranks, ignored)) {  // left by a daemon that was killed
    rmdir(left.path().c_str());
  }
  platform::Log(platform::LogLevel::kInfo, "each rank has a control group of its own", {{"group", ranks}});
  return std::unique_ptr<RankGroups>(new RankGroups(ranks));
}

std::unique_ptr<RankGroup> RankGroups::MakeGroup() {
  const absl::MutexLock lock(&mu_);
  std::erase_if(doomed_, [](const std::string& folder) { return rmdir(folder.c_str()) == 0; });
  const std::string folder = absl::StrCat(folder_, "/", getpid(), "-", ++made_);
  platform::Descriptor processes;
  if (mkdir(folder.c_str(), 0755) == 0) {
    WriteText(folder + "/memory.oom.group", "1");
    processes =
        platform::Descriptor(open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  }
  if (processes.get() < 0) {
    const int error = errno;
    if (!std::exchange(complained_, true)) {
      platform::Log(platform::LogLevel::kWarning, "a rank has no control group of its own",
                    {{"group", folder}, {"error", std::generic_category().message(error)}});
    }
    rmdir(folder.c_str());
    return nullptr;
  }
  return std::make_unique<RankGroup>(*this, folder, std::move(processes));
}

void RankGroups::Remove(const std::string& folder) {
  if (rmdir(folder.c_str()) != 0) {
    const absl::MutexLock lock(&mu_);
    doomed_.push_back(folder);
  }
}

}  // namespace tandem::worker
