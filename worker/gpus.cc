// SPDX-License-Identifier: Apache-2.0
#include "worker/gpus.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "platform/status_macros.h"

namespace tandem::worker {
namespace {

constexpr int kNotFound = 127;  // the shell's exit code

bool IsMig(absl::string_view entry) { return absl::StartsWith(entry, "MIG-"); }

// Finds the GPU that an entry of CUDA_VISIBLE_DEVICES names; null if none or several match.
const v1::Slot* FindGpu(const std::vector<v1::Slot>& gpus, absl::string_view entry) {
  int index = 0;
  const bool by_number = absl::SimpleAtoi(entry, &index);
  const v1::Slot* found = nullptr;
  for (const v1::Slot& gpu : gpus) {
    const bool named = absl::StartsWith(entry, "GPU-") || IsMig(entry);
    const bool match =
        by_number ? gpu.index() == index && index >= 0 : named && absl::StartsWith(gpu.uuid(), entry);
    if (match && found != nullptr) {
      return nullptr;
    }
    if (match) {
      found = &gpu;
    }
  }
  return found;
}

// Returns what nvidia-smi prints; empty if there is no nvidia-smi.
absl::StatusOr<std::string> AskDriver(const std::string& flags) {
  // A driver that hangs must not keep the worker from starting.
  FILE* const pipe = popen(absl::StrCat("timeout 20 nvidia-smi ", flags, " 2>&1").c_str(), "re");
  if (pipe == nullptr) {
    return absl::ErrnoToStatus(errno, "run nvidia-smi");
  }
  std::string text;
  std::array<char, 4096> block{};
  while (const size_t size = fread(block.data(), 1, block.size(), pipe)) {
    text.append(block.data(), size);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    return std::string();
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::UnavailableError(
        absl::StrCat("nvidia-smi failed: ", absl::StripAsciiWhitespace(text.empty() ? "no answer" : text)));
  }
  return text;
}

// nvidia-smi prints "[N/A]" or "[Not Supported]" for a value that it does not know.
bool IsUnknown(absl::string_view field) {
  return absl::StartsWith(field, "[") || absl::EqualsIgnoreCase(field, "N/A");
}

}  // namespace

absl::StatusOr<std::vector<v1::Slot>> FindGpus() {
  TANDEM_ASSIGN_OR_RETURN(
      const std::string text,
      AskDriver("--query-gpu=index,name,uuid,memory.total --format=csv,noheader,nounits"));
  return ReadGpus(text);
}

absl::StatusOr<std::vector<v1::Slot>> FindMigs() {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, AskDriver("-L"));
  return ReadMigs(text);
}

std::vector<v1::Slot> ReadMigs(const std::string& text) {
  std::vector<v1::Slot> slots;
  for (const absl::string_view whole : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    // Matches "  MIG 1g.10gb     Device  0: (UUID: MIG-46a1a8d2-...)", which follows the line of its GPU.
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    const size_t begin = line.find("(UUID: ");
    const size_t end = line.rfind(')');
    if (!absl::StartsWith(line, "MIG ") || begin == line.npos || end == line.npos) {
      continue;
    }
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const std::vector<absl::string_view> sizes =
        absl::StrSplit(words[1], absl::ByAnyChar(".+"));  // "1g.10gb"
    int64_t gigabytes = 0;
    v1::Slot& slot = slots.emplace_back();
    slot.set_index(-1);
    slot.set_device(v1::DEVICE_CUDA);
    slot.set_name(absl::StrCat("MIG ", words[1]));
    slot.set_uuid(std::string(line.substr(begin + 7, end - begin - 7)));
    if (sizes.size() > 1 && absl::SimpleAtoi(absl::StripSuffix(sizes[1], "gb"), &gigabytes)) {
      slot.set_memory_bytes(gigabytes << 30);
    }
    slot.set_healthy(true);
  }
  return slots;
}

absl::StatusOr<std::vector<v1::Slot>> ReadGpus(const std::string& text) {
  std::vector<v1::Slot> slots;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    int index = 0;
    int64_t mebibytes = 0;
    if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &index) || index < 0 ||
        (!absl::SimpleAtoi(fields[3], &mebibytes) && !IsUnknown(absl::StripAsciiWhitespace(fields[3])))) {
      return absl::InvalidArgumentError(absl::StrCat("nvidia-smi printed '", line, "', which is not a GPU"));
    }
    v1::Slot& slot = slots.emplace_back();
    slot.set_index(index);
    slot.set_device(v1::DEVICE_CUDA);
    slot.set_name(std::string(absl::StripAsciiWhitespace(fields[1])));
    slot.set_uuid(std::string(absl::StripAsciiWhitespace(fields[2])));
    slot.set_memory_bytes(std::max<int64_t>(mebibytes, 0) << 20);
    slot.set_healthy(true);
  }
  return slots;
}

absl::StatusOr<std::vector<v1::Slot>> VisibleGpus(const std::vector<v1::Slot>& gpus, const char* visible) {
  std::vector<v1::Slot> slots;
  if (visible == nullptr) {
    std::copy_if(gpus.begin(), gpus.end(), std::back_inserter(slots),
                 [](const v1::Slot& slot) { return !IsMig(slot.uuid()); });
  } else {
    const absl::string_view value = absl::StripAsciiWhitespace(visible);
    // CUDA takes these for "no GPU"; Slurm sets NoDevFiles for a job without a GPU.
    if (value.empty() || value == "-1" || value == "NoDevFiles") {
      return slots;
    }
    std::set<std::string> seen;
    for (const absl::string_view entry : absl::StrSplit(value, ',')) {
      const v1::Slot* const gpu = FindGpu(gpus, absl::StripAsciiWhitespace(entry));
      if (gpu == nullptr || !seen.insert(gpu->uuid()).second) {
        return absl::InvalidArgumentError(absl::StrCat(
            "CUDA_VISIBLE_DEVICES is '", absl::CHexEscape(value), "', and '", absl::CHexEscape(entry), "' ",
            gpu == nullptr
                ? absl::StrCat("is none of the ",
                               std::count_if(gpus.begin(), gpus.end(),
                                             [](const v1::Slot& slot) { return !IsMig(slot.uuid()); }),
                               " GPUs of this machine")
                : "is a GPU that is named twice",
            "; name GPUs by number or UUID as nvidia-smi -L does, with commas between them"));
      }
      slots.push_back(*gpu);
    }
    if (slots.size() > 1 &&
        std::any_of(slots.begin(), slots.end(), [](const v1::Slot& slot) { return IsMig(slot.uuid()); })) {
      return absl::InvalidArgumentError(
          absl::StrCat("CUDA_VISIBLE_DEVICES is '", absl::CHexEscape(value),
                       "', but CUDA gives a process one part of a GPU (MIG) and nothing beside it; name one, "
                       "and start a worker for each"));
    }
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].set_index(static_cast<int>(i));
  }
  return slots;
}

OfferedGpus OfferGpus(const absl::StatusOr<std::vector<v1::Slot>>& found, const char* visible,
                      bool has_program) {
  if (!found.ok()) {
    return {.unused = std::string(found.status().message())};
  }
  if (found->empty()) {
    return {};
  }
  if (!has_program) {
    return {.unused = "there is no tandem-trainer-cuda beside tandem-trainer"};
  }
  absl::StatusOr<std::vector<v1::Slot>> slots = VisibleGpus(*found, visible);
  if (!slots.ok()) {
    return {.unused = std::string(slots.status().message())};
  }
  if (slots->empty()) {
    return {.unused = visible == nullptr
                          ? "all are divided into parts (MIG); name one in CUDA_VISIBLE_DEVICES"
                          : absl::StrCat("CUDA_VISIBLE_DEVICES is '", absl::CHexEscape(visible),
                                         "', which names none")};
  }
  return {.slots = *std::move(slots)};
}

std::string VisibleDevices(const std::vector<v1::Slot>& gpus) {
  return absl::StrJoin(gpus, ",",
                       [](std::string* out, const v1::Slot& gpu) { absl::StrAppend(out, gpu.uuid()); });
}

}  // namespace tandem::worker
