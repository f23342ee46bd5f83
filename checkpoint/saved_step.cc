// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/saved_step.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "platform/for_each_index.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::StatusOr<SavedStep> SavedStep::Open(platform::Files& files, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, ReadFolderManifest(files, path));
  SavedStep step(files, path, std::move(manifest));
  for (const ManifestFile& file : step.manifest_.files) {
    TANDEM_ASSIGN_OR_RETURN(step.headers_.emplace_back(), ReadFileHeader(files, path, file));
  }
  for (size_t i = 0; i < step.manifest_.arrays.size(); ++i) {
    const ManifestArray& array = step.manifest_.arrays[i];
    const std::string name = TensorName(array.name, array.kind);
    step.arrays_.emplace(name, i);
    for (const ManifestPiece& piece : array.pieces) {
      const auto& tensors = step.headers_[static_cast<size_t>(piece.file)].header.tensors;
      const auto tensor = tensors.find(name);
      if (tensor == tensors.end() || tensor->second.dtype != array.dtype ||
          tensor->second.end - tensor->second.begin != piece.elements * BytesOfDtype(array.dtype)) {
        return absl::InvalidArgumentError(
            absl::StrCat(step.manifest_.files[static_cast<size_t>(piece.file)].name, ": array ", name,
                         " is not there as the manifest says"));
      }
    }
  }
  return step;
}

const ManifestArray* SavedStep::Find(const std::string& name) const {
  const auto found = arrays_.find(name);
  return found == arrays_.end() ? nullptr : &manifest_.arrays[found->second];
}

absl::Status SavedStep::Verify() const { return StreamStep(*files_, *this, /*wanted=*/{}, /*take=*/{}); }

DigestedBytes SavedStep::BytesOf(const ManifestArray& array, const ManifestPiece& piece) const {
  const auto file = static_cast<size_t>(piece.file);
  const std::string name = TensorName(array.name, array.kind);
  const TensorPlace& place = headers_[file].header.tensors.at(name);
  return {.file = manifest_.files[file].name,
          .tensor = name,
          .begin = place.begin,
          .end = place.end,
          .digest = piece.digest};
}

std::vector<SavedStep::StoredRun> SavedStep::RunsOf(const ManifestArray& array, const ManifestPiece& piece,
                                                    fsdp::Range of) const {
  const int64_t tensor =
      headers_[static_cast<size_t>(piece.file)].header.tensors.at(TensorName(array.name, array.kind)).begin;
  std::vector<StoredRun> runs;
  for (const fsdp::CommonRun& run :
       fsdp::CommonRuns(array.shape, piece.slice, {.begin = piece.begin, .end = piece.begin + piece.elements},
                        /*b=*/{}, of)) {
    runs.push_back({.begin = tensor + (run.a - piece.begin) * BytesOfDtype(array.dtype),
                    .first = run.b,
                    .elements = run.elements});
  }
  return runs;
}

absl::StatusOr<std::string> SavedStep::Read(const ManifestArray& array, int64_t begin, int64_t count) const {
  const int64_t size = BytesOfDtype(array.dtype);
  std::string bytes(static_cast<size_t>(count * size), '\0');
  for (const ManifestPiece& piece : array.pieces) {
    const std::string& name = manifest_.files[static_cast<size_t>(piece.file)].name;
    for (const StoredRun& run : RunsOf(array, piece, {.begin = begin, .end = begin + count})) {
      TANDEM_ASSIGN_OR_RETURN(const std::string part, files_->ReadRange(absl::StrCat(path_, "/", name),
                                                                        run.begin, run.elements * size));
      if (static_cast<int64_t>(part.size()) != run.elements * size) {
        return absl::UnavailableError(absl::StrCat(name, " has become shorter while it was read"));
      }
      part.copy(bytes.data() + (run.first - begin) * size, part.size());
    }
  }
  return bytes;
}

namespace {

// Enough for a disk that is faster than one thread.
constexpr int kThreads = 4;
// A thread opens the file for itself, and reads so much at a time.
constexpr int64_t kReadBytes = int64_t{8} << 20;
// A thread converts so much at a time, which stays in the processor's cache.
constexpr size_t kTakenBytes = size_t{1} << 20;

// Consecutive elements of a wanted array that are consecutive in a file.
struct Run {
  int64_t begin = 0;  // bytes of the file
  int64_t end = 0;
  size_t wanted = 0;
  int64_t first = 0;  // element
  size_t element_bytes = 0;
};

// The part of a step that one thread reads.
struct Stretch {
  size_t file = 0;
  DigestedBytes bytes;
  std::vector<Run> runs;  // of wanted arrays, sorted by begin
};

std::vector<Run> RunsOf(const SavedStep& step, const ManifestArray& array, const ManifestPiece& piece,
                        size_t wanted) {
  const int64_t size = BytesOfDtype(array.dtype);
  std::vector<Run> runs;
  for (const SavedStep::StoredRun& run :
       step.RunsOf(array, piece, {.begin = 0, .end = fsdp::NumElements(array.shape, {})})) {
    runs.push_back({.begin = run.begin,
                    .end = run.begin + run.elements * size,
                    .wanted = wanted,
                    .first = run.first,
                    .element_bytes = static_cast<size_t>(size)});
  }
  return runs;
}

// Returns the pieces of the wanted arrays if each has a digest of its own, otherwise all files. The largest
// come first, so that no thread is left alone with one of them at the end.
std::vector<Stretch> StretchesOf(const SavedStep& step, const std::vector<const ManifestArray*>& wanted) {
  std::vector<Stretch> pieces;
  bool all_have_digests = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const ManifestPiece& piece :
         wanted[i] == nullptr ? std::vector<ManifestPiece>() : wanted[i]->pieces) {
      pieces.push_back({.file = static_cast<size_t>(piece.file),
                        .bytes = step.BytesOf(*wanted[i], piece),
                        .runs = RunsOf(step, *wanted[i], piece, i)});
      all_have_digests &= !piece.digest.empty();
    }
  }
  std::vector<Stretch> stretches;
  if (!pieces.empty() && all_have_digests) {
    stretches = std::move(pieces);
  } else {
    for (const ManifestFile& file : step.manifest().files) {
      stretches.push_back({.file = stretches.size(), .bytes = AllOf(file)});
    }
    for (const Stretch& piece : pieces) {
      std::copy(piece.runs.begin(), piece.runs.end(), std::back_inserter(stretches[piece.file].runs));
    }
  }
  for (Stretch& stretch : stretches) {
    std::sort(stretch.runs.begin(), stretch.runs.end(),
              [](const Run& a, const Run& b) { return a.begin < b.begin; });
  }
  std::stable_sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    return a.bytes.end - a.bytes.begin > b.bytes.end - b.bytes.begin;
  });
  return stretches;
}

// Finds the runs of a stretch in its parts as they are read.
class RunTaker {
 public:
  // All arguments must outlive this object.
  RunTaker(const SavedStep& step, const Stretch& stretch, const TakeElements& take)
      : header_(step.HeaderOf(stretch.file)), stretch_(stretch), take_(take), place_(stretch.bytes.begin) {}

  absl::Status Take(std::string_view part) {
    TANDEM_RETURN_IF_ERROR(CheckHeaderUnchanged(header_, stretch_.bytes.file, place_, part));
    const int64_t part_end = place_ + static_cast<int64_t>(part.size());
    while (next_ < stretch_.runs.size() && stretch_.runs[next_].begin < part_end) {
      const Run& run = stretch_.runs[next_];
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
  // bytes: the part of the run that begins at byte `begin` of the file. An element may lie in two parts.
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

  const FileHeader& header_;
  const Stretch& stretch_;
  const TakeElements& take_;
  size_t next_ = 0;   // the runs before it were taken
  int64_t place_;     // position in the file
  std::string torn_;  // the first bytes of an element whose rest is in the next part
};

}  // namespace

absl::Status StreamStep(platform::Files& files, const SavedStep& step,
                        const std::vector<const ManifestArray*>& wanted, const TakeElements& take) {
  const std::vector<Stretch> stretches = StretchesOf(step, wanted);
  std::vector<absl::Status> ends(stretches.size(), absl::CancelledError("it threw"));
  std::atomic<bool> failed = false;
  const auto stream = [&](const Stretch& stretch) -> absl::Status {
    VerifiedBytes bytes(files, step.path(), stretch.bytes);
    RunTaker taker(step, stretch, take);
    std::string part;
    while (!bytes.done() && !failed) {
      TANDEM_RETURN_IF_ERROR(bytes.Next(part, kReadBytes));
      for (size_t begin = 0; begin < part.size(); begin += kTakenBytes) {
        TANDEM_RETURN_IF_ERROR(taker.Take(std::string_view(part).substr(begin, kTakenBytes)));
      }
    }
    return absl::OkStatus();
  };
  platform::ForEachIndex(stretches.size(), kThreads, [&](size_t i) {
    const absl::Cleanup stop_others = [&] {
      if (!ends[i].ok()) {
        failed = true;
      }
    };
    ends[i] = stream(stretches[i]);
  });
  const auto error =
      std::find_if(ends.begin(), ends.end(), [](const absl::Status& status) { return !status.ok(); });
  return error == ends.end() ? absl::OkStatus() : *error;
}

}  // namespace tandem::checkpoint
