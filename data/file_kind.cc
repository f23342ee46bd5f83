// SPDX-License-Identifier: Apache-2.0
#include "data/file_kind.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "platform/regular_file.h"
#include "platform/status_macros.h"

namespace tandem::data {
namespace {

struct Kind {
  std::string_view name;
  std::string_view suffix;
  std::string_view beginning;  // empty: the suffix alone identifies it
};

constexpr Kind kKinds[] = {
    {"an index of tokens", ".idx", std::string_view("MMIDIDX\0\0", 9)},
    {"a file of numbers", ".bin", ""},
    {"a gzip file", ".gz", "\x1f\x8b"},
    {"a zstd file", ".zst", "\x28\xb5\x2f\xfd"},
    {"a Parquet file", ".parquet", "PAR1"},
    {"a numpy file", ".npy", "\x93NUMPY"},
    {"a file of JSON lines", ".jsonl", ""},
};
constexpr std::string_view kSafetensors = ".safetensors";
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // as safetensors has it

}  // namespace

absl::StatusOr<Beginning> ReadBeginning(const std::string& path, int64_t most) {
  TANDEM_ASSIGN_OR_RETURN(const platform::Descriptor file, platform::OpenRegularFile(path, O_RDONLY));
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return platform::FileError(errno, "look at", path);
  }
  Beginning beginning{.file_bytes = info.st_size};
  while (static_cast<int64_t>(beginning.bytes.size()) < most) {
    char block[4096];
    const ssize_t got =
        read(file.get(), block, std::min<size_t>(sizeof(block), most - beginning.bytes.size()));
    if (got < 0 && errno != EINTR) {
      return platform::FileError(errno, "read", path);
    }
    if (got == 0) {
      break;
    }
    beginning.bytes.append(block, got > 0 ? static_cast<size_t>(got) : 0);
  }
  return beginning;
}

std::string KindOfNoText(std::string_view name, std::string_view beginning) {
  for (const Kind& kind : kKinds) {
    if (name.ends_with(kind.suffix) || (!kind.beginning.empty() && beginning.starts_with(kind.beginning))) {
      return std::string(kind.name);
    }
  }
  uint64_t header = kMostHeaderBytes;
  if (beginning.size() > sizeof(header)) {
    std::memcpy(&header, beginning.data(), sizeof(header));
  }
  const bool weights = header > 0 && header < kMostHeaderBytes && beginning[sizeof(header)] == '{';
  return weights || name.ends_with(kSafetensors) ? "a safetensors file" : "";
}

}  // namespace tandem::data
