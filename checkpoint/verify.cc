// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// The files that one rank checks by their sizes and digests. All sizes come first: checking them takes
// seconds, and reading the files takes minutes.
class Share {
 public:
  Share(platform::Files& files, const std::string& path, const std::vector<ManifestFile>& all,
        fsdp::Range range)
      : files_(files), path_(path), all_(all), sized_(range.begin), next_(range.begin), end_(range.end) {
    for (int64_t file = range.begin; file < range.end; ++file) {
      total_ += all[static_cast<size_t>(file)].bytes;
    }
  }

  // Reads a part, as WorkTogether requires.
  absl::StatusOr<RankProgress> Advance() {
    const int64_t sizes_until = std::min(end_, sized_ + kMeetingFiles);
    for (; sized_ < sizes_until; ++sized_) {
      TANDEM_RETURN_IF_ERROR(Judge(sized_, CheckSize(files_, path_, all_[static_cast<size_t>(sized_)])));
    }
    const int64_t until = bytes_ + kMeetingBytes;
    while (sized_ == end_ && !done() && bytes_ < until) {
      if (!file_.has_value()) {
        file_.emplace(files_, path_, AllOf(all_[static_cast<size_t>(next_)]));
      }
      TANDEM_RETURN_IF_ERROR(Judge(next_, file_->Next(part_)));
      bytes_ += static_cast<int64_t>(part_.size());
      if (file_->done()) {
        file_.reset();
        ++next_;
      }
    }
    return RankProgress{.done = done(), .amount = bytes_, .total = total_};
  }

  // The index of the file that differs from the manifest. It is the last file that was checked.
  std::optional<int64_t> damaged() const { return damaged_; }

 private:
  bool done() const { return next_ == end_; }

  absl::Status Judge(int64_t file, const absl::Status& status) {
    if (IsDamage(status)) {
      damaged_ = file;
    }
    return status;
  }

  platform::Files& files_;
  const std::string& path_;
  const std::vector<ManifestFile>& all_;
  int64_t sized_;  // the file whose size is checked next
  int64_t next_;   // the file that is being read
  const int64_t end_;
  std::optional<VerifiedBytes> file_;
  std::string part_;
  int64_t bytes_ = 0;
  int64_t total_ = 0;
  std::optional<int64_t> damaged_;
};

// Collective. A second rank reads a file in which a rank found `damage`, so that a machine that misreads
// does not condemn a checkpoint. Returns the damage if the second rank finds it too, otherwise Unavailable.
// `own`: the file that this rank found damaged.
absl::Status ReadAgain(platform::Files& files, comm::Communicator& comm, const std::string& path,
                       const std::vector<ManifestFile>& all, const absl::Status& damage,
                       std::optional<int64_t> own, const OnWorkProgress& on_progress) {
  const std::vector<std::string> found = ExchangeTexts(comm, own.has_value() ? absl::StrCat(*own) : "");
  const auto first = std::find_if(found.begin(), found.end(), [](const auto& file) { return !file.empty(); });
  const auto rank = static_cast<int>(first - found.begin());
  const int second = (rank + comm.size() / 2) % comm.size();  // on another machine, if there are two
  if (second == rank) {
    return damage;
  }
  const int64_t file = std::stoll(*first);
  Share again(files, path, all, {.begin = file, .end = comm.rank() == second ? file + 1 : file});
  TANDEM_RETURN_IF_ERROR(WorkTogether(
      comm, path, [&] { return again.Advance(); }, on_progress));
  return absl::UnavailableError(absl::StrCat("rank ", rank, ": ", damage.message(), ", but rank ", second,
                                             " reads it as it should be: the machine of rank ", rank,
                                             " misreads it, or has another file there"));
}

}  // namespace

fsdp::Range FilesOfRank(const std::vector<ManifestFile>& files, int rank, int ranks) {
  const int64_t total = TotalBytes(files);
  // A file is checked by the rank in whose part of all bytes the file's middle lies.
  const int64_t part = std::max<int64_t>(1, (total + ranks - 1) / ranks);
  fsdp::Range range;
  int64_t begin = 0;
  for (const ManifestFile& file : files) {
    const auto owner = static_cast<int>(std::min<int64_t>(ranks - 1, (begin + file.bytes / 2) / part));
    begin += file.bytes;
    range.begin += owner < rank ? 1 : 0;
    range.end += owner <= rank ? 1 : 0;
  }
  return range;
}

std::vector<int64_t> ListStepsTogether(platform::Files& files, comm::Communicator& comm,
                                       const std::string& directory, int64_t after) {
  std::vector<int64_t> steps;
  absl::Status listed;
  if (comm.rank() == 0) {
    listed = StatusOfPart([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(steps, ListSteps(files, directory));
      return absl::OkStatus();
    });
  }
  AgreeOnSuccess(comm, listed);
  std::erase_if(steps, [&](int64_t step) { return step <= after; });
  return nlohmann::json::parse(TextOfRankZero(comm, nlohmann::json(steps).dump()))
      .get<std::vector<int64_t>>();
}

absl::StatusOr<Manifest> ReadManifestTogether(
    platform::Files& files, comm::Communicator& comm, const std::string& path,
    const std::function<absl::Status(const absl::Status& read)>& judge) {
  Manifest manifest;
  absl::Status read = StatusOfPart([&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(manifest, ReadFolderManifest(files, path));
    return absl::OkStatus();
  });
  if (judge) {
    read = judge(read);
  } else if (comm.rank() != 0 && IsDamage(read)) {
    read = absl::UnavailableError(read.message());
  }
  TANDEM_RETURN_IF_ERROR(AgreeOnReading(comm, read));
  const std::vector<std::string> digests = ExchangeTexts(comm, manifest.digest);
  for (size_t rank = 1; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, ": it sees another ", kManifestName, " than rank 0"));
    }
  }
  return manifest;
}

absl::StatusOr<Manifest> VerifyTogether(platform::Files& files, comm::Communicator& comm,
                                        const std::string& path, const OnWorkProgress& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, ReadManifestTogether(files, comm, path));
  Share share(files, path, manifest.files, FilesOfRank(manifest.files, comm.rank(), comm.size()));
  const absl::Status read = WorkTogether(
      comm, path, [&] { return share.Advance(); }, on_progress);
  if (IsDamage(read)) {
    return ReadAgain(files, comm, path, manifest.files, read, share.damaged(), on_progress);
  }
  TANDEM_RETURN_IF_ERROR(read);
  return manifest;
}

namespace {

// Collective. Checks that the files have the sizes in the manifest; every rank must see the same sizes.
absl::Status CheckSizesTogether(platform::Files& files, comm::Communicator& comm, const std::string& path) {
  // All errors get the same code, because AgreeOnReading returns the first rank's error of the worst code.
  const auto with_rank = [&](const absl::Status& status) {
    return status.ok()
               ? status
               : absl::InvalidArgumentError(absl::StrCat(
                     comm.rank() == 0 ? "" : absl::StrCat("rank ", comm.rank(), ": "), status.message()));
  };
  TANDEM_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifestTogether(files, comm, path, with_rank));
  const fsdp::Range share = FilesOfRank(manifest.files, comm.rank(), comm.size());
  return AgreeOnReading(
      comm, with_rank(StatusOfPart([&]() -> absl::Status {
        for (int64_t file = share.begin; file < share.end; ++file) {
          TANDEM_RETURN_IF_ERROR(CheckSize(files, path, manifest.files[static_cast<size_t>(file)]));
        }
        return absl::OkStatus();
      })));
}

}  // namespace

WholeSteps FindWholeSteps(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                          const OnLooked& looked) {
  WholeSteps whole;
  for (const int64_t step : ListStepsTogether(files, comm, directory, /*after=*/-1)) {
    // The ranks meet after each step, so none waits longer than another needs for its share of one step.
    const absl::Status checked =
        CheckSizesTogether(files, comm, absl::StrCat(directory, "/", StepName(step)));
    if (checked.ok()) {
      whole.insert(step);
    }
    looked(step, std::string(checked.message()));
  }
  return whole;
}

}  // namespace tandem::checkpoint
