#include "worker/gpus.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem::worker {
namespace {

constexpr int kNotFound = 127;  // of the shell

}  // namespace

absl::StatusOr<std::vector<v1::Place>> FindGpus() {
  // A driver that hangs must not keep the worker from starting.
  FILE* const pipe = popen(
      "timeout 20 nvidia-smi --query-gpu=index,name,uuid,memory.total --format=csv,noheader,nounits 2>&1",
      "re");
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "run nvidia-smi");
  std::string text;
  std::array<char, 4096> block{};
  while (const size_t size = fread(block.data(), 1, block.size(), pipe)) text.append(block.data(), size);
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) return std::vector<v1::Place>();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::UnavailableError(
        absl::StrCat("nvidia-smi failed: ", absl::StripAsciiWhitespace(text.empty() ? "no answer" : text)));
  }
  return ReadGpus(text);
}

absl::StatusOr<std::vector<v1::Place>> ReadGpus(const std::string& text) {
  std::vector<v1::Place> places;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    int index = 0;
    int64_t mebibytes = 0;
    if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &index) || index < 0 ||
        !absl::SimpleAtoi(fields[3], &mebibytes)) {
      return absl::InvalidArgumentError(absl::StrCat("nvidia-smi printed '", line, "', which is no GPU"));
    }
    v1::Place& place = places.emplace_back();
    place.set_index(index);
    place.set_device(v1::DEVICE_CUDA);
    place.set_name(std::string(absl::StripAsciiWhitespace(fields[1])));
    place.set_uuid(std::string(absl::StripAsciiWhitespace(fields[2])));
    place.set_memory_bytes(mebibytes << 20);
    place.set_healthy(true);
  }
  return places;
}

}  // namespace tandem::worker
