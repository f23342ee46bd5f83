// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/doctor/checks.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/number_text.h"
#include "plan/quantity_text.h"
#include "platform/build_info.h"
#include "platform/control_groups.h"

namespace tandem::cli {
namespace {

using Level = Finding::Level;

constexpr int kLeastDriver = 580;
constexpr int kLeastNccl = 22800;  // ncclAlltoAll
constexpr int64_t kLeastSharedMemory = int64_t{64} << 20;
constexpr int64_t kLeastDescriptors = 4096;

// Returns what a command prints on both streams within 10 s.
std::string Output(const std::string& command, int* status = nullptr) {
  FILE* const pipe = ::popen(absl::StrCat("timeout 10 ", command, " 2>&1").c_str(), "re");
  if (pipe == nullptr) {
    return "";
  }
  std::string text;
  std::array<char, 4096> block{};
  while (const size_t size = std::fread(block.data(), 1, block.size(), pipe)) {
    text.append(block.data(), size);
  }
  const int ended = ::pclose(pipe);
  if (status != nullptr) {
    *status = ended;
  }
  return text;
}

// Quotes a path for a shell.
std::string ShellWord(const std::string& path) {
  return absl::StrCat("'", absl::StrJoin(absl::StrSplit(path, '\''), "'\\''"), "'");
}

Finding CheckDaemon(const std::string& folder, const std::string& name) {
  const std::string path = absl::StrCat(folder, "/", name);
  if (::access(path.c_str(), X_OK) != 0) {
    return {Level::kWarn, name,
            absl::StrCat("there is none in ", folder, "; install it if this machine needs it")};
  }
  const std::string said = Escape(absl::StripAsciiWhitespace(Output(ShellWord(path) + " --version")));
  const std::string& own = platform::BuildVersion();
  if (!absl::StrContains(said, own)) {
    return {Level::kFail, name,
            absl::StrCat("says \"", said.substr(0, 200), "\", and this program is of build ", own,
                         "; install both from one build")};
  }
  return {Level::kOk, name, path};
}

Finding CheckNccl(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    return {Level::kFail, "nccl", absl::StrCat(path, " cannot be loaded: ", Escape(::dlerror()))};
  }
  using Version = int (*)(int*);
  const auto version = reinterpret_cast<Version>(::dlsym(library, "ncclGetVersion"));
  int number = 0;
  if (version == nullptr || version(&number) != 0) {
    return {Level::kFail, "nccl", absl::StrCat(path, " does not say its version; install NCCL 2.28 again")};
  }
  return CheckNcclVersion(number, path);
}

// Checks that a trainer in `folder` can be loaded; `without`: what follows if it is not there. Returns its
// libraries.
std::map<std::string, std::string> CheckTrainer(const std::string& folder, const std::string& name,
                                                const std::string& without, std::vector<Finding>& findings) {
  const std::string path = folder + "/" + name;
  if (::access(path.c_str(), X_OK) != 0) {
    findings.push_back({Level::kWarn, name, absl::StrCat("there is none in ", folder, ", so ", without)});
    return {};
  }
  std::map<std::string, std::string> libraries =
      LoadedLibraries(Output("env LD_TRACE_LOADED_OBJECTS=1 " + ShellWord(path)));
  std::vector<std::string> missing;
  for (const auto& [library, found] : libraries) {
    if (found.empty()) {
      missing.push_back(library);
    }
  }
  findings.push_back(
      missing.empty()
          ? Finding{Level::kOk, "libraries", absl::StrCat(libraries.size(), " of ", name, " are found")}
          : Finding{Level::kFail, "libraries",
                    absl::StrCat(name, " cannot start: not found: ", absl::StrJoin(missing, ", "),
                                 "; name their folder in LD_LIBRARY_PATH, or install again")});
  return libraries;
}

}  // namespace

std::string DriverVersion(const std::string& text) {
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(word, '.');
    int major = 0;
    if (parts.size() >= 2 && parts.size() <= 3 && absl::SimpleAtoi(parts[0], &major) && major >= 100) {
      return std::string(word);
    }
  }
  return "";
}

std::map<std::string, std::string> LoadedLibraries(const std::string& text) {
  std::map<std::string, std::string> out;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> sides = absl::StrSplit(line, " => ");
    if (sides.size() == 2) {
      const std::vector<std::string> right = absl::StrSplit(sides[1], " (");
      out[std::string(absl::StripAsciiWhitespace(sides[0]))] =
          absl::StartsWith(sides[1], "not found") ? "" : right[0];
    }
  }
  return out;
}

Finding CheckNcclVersion(int version, const std::string& path) {
  const std::string found =
      absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100, " in ", path);
  return version < kLeastNccl
             ? Finding{Level::kFail, "nccl", absl::StrCat(found, " is too old; install NCCL 2.28 or later")}
             : Finding{Level::kOk, "nccl", found};
}

Finding CheckDriver(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0;
  if (!absl::SimpleAtoi(parts[0], &major)) {
    return {Level::kFail, "driver", "its version is unknown; see /proc/driver/nvidia/version"};
  }
  if (major < kLeastDriver) {
    return {Level::kFail, "driver",
            absl::StrCat(version, " is too old for CUDA 13, which needs ", kLeastDriver,
                         "; install a newer one")};
  }
  return {Level::kOk, "driver", version};
}

std::vector<Finding> CheckPrograms(const std::string& folder) {
  std::vector<Finding> findings = {{Level::kOk, "tandem", platform::BuildVersion()}};
  for (const char* name : {"tandem-controller", "tandem-worker"}) {
    findings.push_back(CheckDaemon(folder, name));
  }
  CheckTrainer(folder, "tandem-trainer", "no rank can run here", findings);
  return findings;
}

std::vector<Finding> CheckGpus(const std::string& folder) {
  const std::string text = platform::ReadKernelFile("/proc/driver/nvidia/version");
  if (text.empty()) {
    return {{Level::kOk, "driver", "no NVIDIA driver: ranks run on processors here"}};
  }
  std::vector<Finding> findings = {CheckDriver(DriverVersion(text))};
  int status = -1;
  const std::string gpus = Output("nvidia-smi --query-gpu=name,memory.total --format=csv,noheader", &status);
  const std::vector<std::string> lines = absl::StrSplit(gpus, '\n', absl::SkipWhitespace());
  if (lines.empty() || status != 0) {
    findings.push_back({Level::kFail, "gpus",
                        absl::StrCat("nvidia-smi fails: ", Escape(gpus.substr(0, 200)),
                                     "; workers offer no GPU until that is fixed")});
  } else {
    findings.push_back({Level::kOk, "gpus", absl::StrCat(lines.size(), ": ", Escape(lines[0]))});
  }
  const std::map<std::string, std::string> libraries =
      CheckTrainer(folder, "tandem-trainer-cuda", "workers offer no GPU", findings);
  for (const auto& [name, path] : libraries) {
    if (absl::StartsWith(name, "libnccl.so") && !path.empty()) {
      findings.push_back(CheckNccl(path));
    }
  }
  return findings;
}

std::vector<Finding> CheckLimits() {
  std::vector<Finding> findings;
  struct statvfs shared = {};
  if (::statvfs("/dev/shm", &shared) != 0) {
    findings.push_back(
        {Level::kFail, "shared memory", "there is no /dev/shm, which NCCL needs; mount a tmpfs there"});
  } else {
    const int64_t bytes = static_cast<int64_t>(shared.f_bavail) * static_cast<int64_t>(shared.f_frsize);
    findings.push_back(
        bytes < kLeastSharedMemory
            ? Finding{Level::kWarn, "shared memory",
                      absl::StrCat(BytesText(bytes),
                                   " are free in /dev/shm; NCCL wants more between "
                                   "GPUs of one machine: give a container --shm-size=1g")}
            : Finding{Level::kOk, "shared memory", BytesText(bytes) + " are free in /dev/shm"});
  }
  rlimit descriptors = {};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  const auto most = static_cast<int64_t>(descriptors.rlim_max);
  const bool few = descriptors.rlim_max != RLIM_INFINITY && most < kLeastDescriptors;
  findings.push_back(
      {few ? Level::kWarn : Level::kOk, "descriptors",
       few ? absl::StrCat("a process may open ", most, " at most; a controller of many workers needs ",
                          "more: raise the hard limit (LimitNOFILE, ulimit -Hn)")
       : descriptors.rlim_max == RLIM_INFINITY
           ? "a process may open any number"
           : absl::StrCat("a process may open ", plan::GroupedText(most))});
  timex clock = {};
  const bool kept = ::adjtimex(&clock) >= 0 && (clock.status & STA_UNSYNC) == 0;
  findings.push_back({kept ? Level::kOk : Level::kWarn, "clock",
                      kept ? "synchronised by a time service"
                           : "not synchronised: Tandem does not depend on it, but timestamps in logs and "
                             "events will not agree with other machines; start chrony or systemd-timesyncd"});
  return findings;
}

}  // namespace tandem::cli
