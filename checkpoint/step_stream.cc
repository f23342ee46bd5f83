// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_stream.h"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/verified_bytes.h"
#include "platform/bounded_queue.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// What is read of a step, in this order.
struct Stretch {
  size_t file = 0;
  int64_t begin = 0;  // bytes of the file
  VerifiedBytes bytes;
};

struct StretchPart {
  size_t stretch = 0;
  std::string bytes;
};

// Pieces of the wanted arrays by file, if each has a digest of its own; else all files.
std::deque<Stretch> StretchesOf(platform::Files& files, const SavedStep& step,
                                const std::vector<const ManifestArray*>& wanted) {
  std::vector<std::pair<size_t, DigestedBytes>> pieces;
  bool all_have_digests = true;
  for (const ManifestArray* const array : wanted) {
    for (const ManifestPiece& piece : array == nullptr ? std::vector<ManifestPiece>() : array->pieces) {
      pieces.emplace_back(static_cast<size_t>(piece.file), step.BytesOf(*array, piece));
      all_have_digests &= !piece.digest.empty();
    }
  }
  if (pieces.empty() || !all_have_digests) {
    pieces.clear();
    for (size_t i = 0; i < step.manifest().files.size(); ++i) {
      pieces.emplace_back(i, AllOf(step.manifest().files[i]));
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.begin) < std::tie(b.first, b.second.begin);
  });
  std::deque<Stretch> stretches;
  for (auto& [file, bytes] : pieces) {
    const int64_t begin = bytes.begin;
    stretches.push_back(
        {.file = file, .begin = begin, .bytes = VerifiedBytes(files, step.path(), std::move(bytes))});
  }
  return stretches;
}

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

  // The next part begins at that byte, not behind the one before it.
  void SkipTo(int64_t place) { place_ = place; }

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
absl::Status ReadAll(std::deque<Stretch>& stretches, platform::BoundedQueue<StretchPart>& parts) {
  const absl::Cleanup end = [&] { parts.End(); };
  for (size_t i = 0; i < stretches.size(); ++i) {
    while (!stretches[i].bytes.read_all()) {
      TANDEM_ASSIGN_OR_RETURN(std::string bytes, stretches[i].bytes.Read());
      if (!parts.Push({.stretch = i, .bytes = std::move(bytes)})) {
        return absl::OkStatus();  // what was read is wrong, or not wanted any more
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamStep(platform::Files& files, const SavedStep& step,
                        const std::vector<const ManifestArray*>& wanted, const TakeElements& take) {
  std::deque<Stretch> stretches = StretchesOf(files, step, wanted);
  platform::BoundedQueue<StretchPart> parts(/*most=*/2);
  std::future<absl::Status> user = std::async(std::launch::async, [&]() -> absl::Status {
    const absl::Cleanup abandon = [&] { parts.Abandon(); };
    std::optional<WantedOfFile> file;
    size_t current = stretches.size();
    while (const std::optional<StretchPart> part = parts.Pop()) {
      Stretch& stretch = stretches[part->stretch];
      if (part->stretch != current) {
        if (!file.has_value() || stretches[current].file != stretch.file) {
          file.emplace(step, stretch.file, wanted, take);
        }
        file->SkipTo(stretch.begin);
        current = part->stretch;
      }
      TANDEM_RETURN_IF_ERROR(stretch.bytes.Verify(part->bytes));
      TANDEM_RETURN_IF_ERROR(file->Take(part->bytes));
    }
    return absl::OkStatus();
  });
  const absl::Status read = ReadAll(stretches, parts);
  TANDEM_RETURN_IF_ERROR(user.get());
  return read;
}

}  // namespace tandem::checkpoint
