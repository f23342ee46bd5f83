// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_stream.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/verified_file.h"
#include "platform/bounded_queue.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

struct FilePart {
  size_t file = 0;
  std::string bytes;
};

// What is wanted of one file, found in its parts as they come.
class WantedOfFile {
 public:
  // All outlive it.
  WantedOfFile(const SavedStep& step, size_t file, const std::vector<const ManifestArray*>& wanted,
               const TakeElements& take)
      : beginning_(step.BeginningOf(file)), name_(step.manifest().files[file].name), take_(take) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] != nullptr) {
        AddRuns(step, static_cast<int>(file), *wanted[i], i);
      }
    }
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  }

  absl::Status Take(std::string_view part) {
    TANDEM_RETURN_IF_ERROR(CheckBeginning(part));
    const int64_t part_end = place_ + static_cast<int64_t>(part.size());
    while (next_ < runs_.size() && runs_[next_].begin < part_end) {
      const Run& run = runs_[next_];
      const int64_t begin = std::max(run.begin, place_);
      const int64_t end = std::min(run.end, part_end);
      TANDEM_RETURN_IF_ERROR(TakeOf(
          run, begin, part.substr(static_cast<size_t>(begin - place_), static_cast<size_t>(end - begin))));
      if (end < run.end) {
        break;
      }
      ++next_;
    }
    place_ = part_end;
    return absl::OkStatus();
  }

 private:
  struct Run {
    int64_t begin = 0;  // bytes of the file
    int64_t end = 0;
    size_t wanted = 0;
    int64_t first = 0;  // element
    size_t element_bytes = 0;
  };

  void AddRuns(const SavedStep& step, int file, const ManifestArray& array, size_t wanted) {
    const int64_t size = BytesOfDtype(array.dtype);
    for (const ManifestPiece& piece : array.pieces) {
      if (piece.file != file) {
        continue;
      }
      for (const SavedStep::StoredRun& run :
           step.RunsOf(array, piece, {.begin = 0, .end = fsdp::NumElements(array.shape, {})})) {
        runs_.push_back({.begin = run.begin,
                         .end = run.begin + run.elements * size,
                         .wanted = wanted,
                         .first = run.first,
                         .element_bytes = static_cast<size_t>(size)});
      }
    }
  }

  // It says where the arrays lie, and was read before what the digest is of.
  absl::Status CheckBeginning(std::string_view part) const {
    const auto place = static_cast<size_t>(place_);
    if (place < beginning_.size()) {
      const size_t both = std::min(beginning_.size() - place, part.size());
      if (part.substr(0, both) != std::string_view(beginning_).substr(place, both)) {
        return absl::UnavailableError(absl::StrCat(name_, " changed while it was read"));
      }
    }
    return absl::OkStatus();
  }

  // bytes: of the run, from byte `begin` of the file on. An element may lie in two parts.
  absl::Status TakeOf(const Run& run, int64_t begin, std::string_view bytes) {
    const auto size = static_cast<int64_t>(run.element_bytes);
    const int64_t element = run.first + (begin - static_cast<int64_t>(torn_.size()) - run.begin) / size;
    int64_t taken = 0;
    if (!torn_.empty()) {
      const size_t missing = run.element_bytes - torn_.size();
      torn_.append(bytes.substr(0, missing));
      bytes.remove_prefix(std::min(missing, bytes.size()));
      if (torn_.size() < run.element_bytes) {
        return absl::OkStatus();
      }
      TANDEM_RETURN_IF_ERROR(take_(run.wanted, element, torn_));
      torn_.clear();
      taken = 1;
    }
    const size_t whole = bytes.size() / run.element_bytes * run.element_bytes;
    torn_ = bytes.substr(whole);
    return whole == 0 ? absl::OkStatus() : take_(run.wanted, element + taken, bytes.substr(0, whole));
  }

  const std::string& beginning_;
  const std::string& name_;
  const TakeElements& take_;
  std::vector<Run> runs_;  // by begin
  size_t next_ = 0;        // those before it are taken
  int64_t place_ = 0;      // in the file
  std::string torn_;       // the first bytes of an element of runs_[next_]
};

// On the thread that StreamStep is called on: what it allocates there, the next part has again, while memory
// of another thread's would go back to the system and be zeroed for each part.
absl::Status ReadAll(std::deque<VerifiedFile>& contents, platform::BoundedQueue<FilePart>& parts) {
  const absl::Cleanup end = [&] { parts.End(); };
  for (size_t i = 0; i < contents.size(); ++i) {
    while (!contents[i].read_all()) {
      TANDEM_ASSIGN_OR_RETURN(std::string bytes, contents[i].Read());
      if (!parts.Push({.file = i, .bytes = std::move(bytes)})) {
        return absl::OkStatus();  // what was read is wrong, or not wanted any more
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamStep(platform::Files& files, const SavedStep& step,
                        const std::vector<const ManifestArray*>& wanted, const TakeElements& take) {
  std::deque<VerifiedFile> contents;
  for (const ManifestFile& file : step.manifest().files) {
    contents.emplace_back(files, step.path(), file);
  }
  platform::BoundedQueue<FilePart> parts(/*most=*/2);
  std::future<absl::Status> user = std::async(std::launch::async, [&]() -> absl::Status {
    const absl::Cleanup abandon = [&] { parts.Abandon(); };
    std::optional<WantedOfFile> current;
    size_t current_file = contents.size();
    while (const std::optional<FilePart> part = parts.Pop()) {
      if (part->file != current_file) {
        current_file = part->file;
        current.emplace(step, current_file, wanted, take);
      }
      TANDEM_RETURN_IF_ERROR(contents[current_file].Verify(part->bytes));
      TANDEM_RETURN_IF_ERROR(current->Take(part->bytes));
    }
    return absl::OkStatus();
  });
  const absl::Status read = ReadAll(contents, parts);
  TANDEM_RETURN_IF_ERROR(user.get());
  return read;
}

}  // namespace tandem::checkpoint
