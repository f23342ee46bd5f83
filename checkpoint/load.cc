// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard.h"
#include "checkpoint/verify.h"
#include "checkpoint/work_together.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// Elements of one file's tensor that go into one shard.
struct Copy {
  const Shard* shard = nullptr;
  const ManifestPiece* piece = nullptr;
  fsdp::CommonRun run;  // a: in the piece's slice, b: in the shard's
};

absl::StatusOr<const ManifestArray*> FindArray(const std::map<std::string, const ManifestArray*>& arrays,
                                               const Shard& shard) {
  const std::string name = TensorName(shard);
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has no array ", name,
                     "; a unit that was frozen when it was saved has weights only: freeze it here too "
                     "(training.frozen), or start from step 1"));
  }
  const ManifestArray& array = *found->second;
  if (!Holds(array, shard.shape)) {
    return absl::InvalidArgumentError(absl::StrCat("array ", name, " is ", ShapeText(array.shape), " there, ",
                                                   ShapeText(shard.shape), " here"));
  }
  const std::string dtype = SafetensorsDtype(shard.data.type);
  if (array.dtype != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("array ", name, " is of type ", array.dtype, " there, ", dtype, " here"));
  }
  if (!IsPart(shard)) {
    return absl::InvalidArgumentError("array " + name + ": the shard is not a part of it");
  }
  return &array;
}

// A copy from bytes [begin, end) of a file to byte `to` of a shard's data.
struct Move {
  int64_t begin = 0;
  int64_t end = 0;
  const Elements* data = nullptr;
  int64_t to = 0;
};

// Returns the files that this rank reads, each with the copies to make from it.
absl::StatusOr<std::map<int, std::vector<Copy>>> CopiesByFile(const Manifest& manifest,
                                                              const std::vector<Shard>& shards) {
  std::map<std::string, const ManifestArray*> arrays;
  for (const ManifestArray& array : manifest.arrays) {
    arrays.emplace(TensorName(array.name, array.kind), &array);
  }

  std::map<int, std::vector<Copy>> by_file;
  for (const Shard& shard : shards) {
    TANDEM_ASSIGN_OR_RETURN(const ManifestArray* const array, FindArray(arrays, shard));
    for (const ManifestPiece& piece : array->pieces) {
      const fsdp::Range there{.begin = piece.begin, .end = piece.begin + piece.elements};
      for (const fsdp::CommonRun& run :
           fsdp::CommonRuns(shard.shape, piece.slice, there, shard.slice, ElementsOf(shard))) {
        by_file[piece.file].push_back({.shard = &shard, .piece = &piece, .run = run});
      }
    }
  }
  // Files of ranks that owned nothing are read too: no shard needs them, but they must not be damaged.
  std::vector<bool> has_pieces(manifest.files.size());
  for (const ManifestArray& array : manifest.arrays) {
    for (const ManifestPiece& piece : array.pieces) {
      has_pieces[static_cast<size_t>(piece.file)] = true;
    }
  }
  for (size_t file = 0; file < has_pieces.size(); ++file) {
    if (!has_pieces[file]) {
      by_file[static_cast<int>(file)];
    }
  }
  return by_file;
}

// Copies the elements of this rank's shards while it reads the files.
class Loading {
 public:
  // All arguments must outlive this object.
  Loading(platform::Files& files, const std::string& path, const Manifest& manifest,
          const std::map<int, std::vector<Copy>>& by_file)
      : files_(files), path_(path), manifest_(manifest), by_file_(by_file), next_(by_file.begin()) {
    for (const auto& [file, copies] : by_file) {
      total_ += manifest.files[static_cast<size_t>(file)].bytes;
    }
  }

  // Reads a part, as WorkTogether requires.
  absl::StatusOr<RankProgress> Advance() {
    const int64_t until = bytes_ + kMeetingBytes;
    while (!done() && bytes_ < until) {
      if (!file_.has_value()) {
        TANDEM_RETURN_IF_ERROR(Open(manifest_.files[static_cast<size_t>(next_->first)], next_->second));
      }
      TANDEM_RETURN_IF_ERROR(file_->Next(part_));
      TANDEM_RETURN_IF_ERROR(CheckHeaderUnchanged(
          header_, manifest_.files[static_cast<size_t>(next_->first)].name, place_, part_));
      TakeFromPart();
      if (file_->done()) {
        file_.reset();
        ++next_;
      }
    }
    return RankProgress{.done = done(), .amount = bytes_, .total = total_};
  }

 private:
  bool done() const { return next_ == by_file_.end(); }

  absl::Status Open(const ManifestFile& file, const std::vector<Copy>& copies) {
    TANDEM_ASSIGN_OR_RETURN(header_, ReadFileHeader(files_, path_, file));
    moves_.clear();
    for (const Copy& copy : copies) {
      TANDEM_ASSIGN_OR_RETURN(const Move move, MoveOf(file, header_.header, copy));
      moves_.push_back(move);
    }
    std::sort(moves_.begin(), moves_.end(), [](const Move& a, const Move& b) { return a.begin < b.begin; });
    next_move_ = 0;
    place_ = 0;
    file_.emplace(files_, path_, AllOf(file));
    return absl::OkStatus();
  }

  static absl::StatusOr<Move> MoveOf(const ManifestFile& file, const SafetensorsHeader& header,
                                     const Copy& copy) {
    const Shard& shard = *copy.shard;
    const int64_t bytes = device::BytesOf(shard.data.type);
    const auto tensor = header.tensors.find(TensorName(shard));
    if (tensor == header.tensors.end() || tensor->second.dtype != SafetensorsDtype(shard.data.type) ||
        tensor->second.end - tensor->second.begin != copy.piece->elements * bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name, ": array ", TensorName(shard), " is not there as the manifest says"));
    }
    const int64_t begin = tensor->second.begin + (copy.run.a - copy.piece->begin) * bytes;
    return Move{.begin = begin,
                .end = begin + copy.run.elements * bytes,
                .data = &shard.data,
                .to = (copy.run.b - shard.begin) * bytes};
  }

  void TakeFromPart() {
    const int64_t part_end = place_ + static_cast<int64_t>(part_.size());
    while (next_move_ < moves_.size() && moves_[next_move_].end <= place_) {
      ++next_move_;
    }
    for (size_t i = next_move_; i < moves_.size() && moves_[i].begin < part_end; ++i) {
      const Move& move = moves_[i];
      const int64_t begin = std::max(move.begin, place_);
      const int64_t end = std::min(move.end, part_end);
      if (begin < end) {
        Write(std::string_view(part_).substr(static_cast<size_t>(begin - place_),
                                             static_cast<size_t>(end - begin)),
              *move.data, move.to + (begin - move.begin));
      }
    }
    bytes_ += part_end - place_;
    place_ = part_end;
  }

  platform::Files& files_;
  const std::string& path_;
  const Manifest& manifest_;
  const std::map<int, std::vector<Copy>>& by_file_;
  std::map<int, std::vector<Copy>>::const_iterator next_;  // the file that is being read
  std::optional<VerifiedBytes> file_;
  FileHeader header_;        // of that file
  std::vector<Move> moves_;  // of that file, sorted by begin
  size_t next_move_ = 0;     // the moves before it are done
  int64_t place_ = 0;        // position in that file
  std::string part_;
  int64_t bytes_ = 0;
  int64_t total_ = 0;
};

}  // namespace

void Load(platform::Files& files, comm::Communicator& comm, const std::string& path,
          const std::vector<Shard>& shards, const OnWorkProgress& on_progress) {
  const auto load = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifestTogether(files, comm, path));
    std::map<int, std::vector<Copy>> by_file;
    TANDEM_RETURN_IF_ERROR(AgreeOnReading(comm, StatusOfPart([&]() -> absl::Status {
                                            TANDEM_ASSIGN_OR_RETURN(by_file, CopiesByFile(manifest, shards));
                                            return absl::OkStatus();
                                          })));
    Loading loading(files, path, manifest, by_file);
    return WorkTogether(
        comm, path, [&] { return loading.Advance(); }, on_progress);
  };
  if (const absl::Status loaded = load(); !loaded.ok()) {
    throw CheckpointError(absl::StrCat("checkpoint ", path, ": ", loaded.message()));
  }
}

}  // namespace tandem::checkpoint
