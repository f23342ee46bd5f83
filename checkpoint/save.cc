// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "checkpoint/remove_together.h"
#include "checkpoint/retention.h"
#include "checkpoint/shards_file.h"
#include "checkpoint/verify.h"
#include "checkpoint/work_together.h"
#include "checkpoint/write_together.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// What rank 0 sends to all ranks about a checkpoint, except its path, which all know. No digest: there is no
// checkpoint.
std::string ToText(const Saved& saved) {
  return Json{{"bytes", saved.bytes}, {"digest", saved.manifest_digest}}.dump();
}

// One save on one rank. Its steps are collective, in this order.
class Saving {
 public:
  Saving(platform::Files& files, comm::Communicator& comm, const JobFolder& folder, int keep,
         const Owner& self, const Info& info, const std::vector<Shard>& shards, WholeSteps& whole,
         const OnCommitted& committed)
      : files_(files),
        comm_(comm),
        folder_(folder),
        keep_(keep),
        self_(self),
        info_(info),
        shards_(shards),
        whole_(whole),
        committed_(committed),
        path_(absl::StrCat(folder.path, "/", StepName(info.step))),
        temporary_(absl::StrCat(folder.path, "/", TemporaryName(info.step, self))) {}

  Saved Run() {
    const auto start = std::chrono::steady_clock::now();
    const bool is_new = Begin();
    Saved saved;
    if (!is_new) {
      saved = LookAtExisting();
    }
    const bool write = saved.path.empty();
    if (write) {
      saved = Write();
    }
    std::vector<std::string> doomed;
    if (comm_.rank() == 0) {
      whole_.insert(info_.step);
      if (write) {
        doomed = SetAsideOlderOnes();
      }
    }
    saved.removed_steps = std::move(removed_steps_);
    saved.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (comm_.rank() == 0 && committed_) {
      committed_(saved);
    }
    if (write) {
      Remove(doomed);
    }
    saved.not_removed = std::move(not_removed_);
    return saved;
  }

 private:
  Saved Write() {
    Manifest own{.files = {{.name = absl::StrFormat("rank-%05d.safetensors", comm_.rank())}}};
    ManifestFile& own_file = own.files[0];
    std::optional<ShardsFile> file;
    Guarded([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(ShardsFile made, ShardsFile::Make(shards_));
      file.emplace(std::move(made));
      own.arrays = ArraysOf(shards_);
      return comm_.rank() == 0 ? files_.CreateFolder(temporary_) : absl::OkStatus();
    });
    const absl::Status written =
        WriteTogether(files_, comm_, temporary_, absl::StrCat(temporary_, "/", own_file.name),
                      [&]() -> absl::StatusOr<std::string_view> { return file->Next(); });
    Guarded([&] { return written; });
    own_file.bytes = file->bytes();
    own_file.digest = file->digest();
    for (size_t i = 0; i < own.arrays.size(); ++i) {
      for (ManifestPiece& piece : own.arrays[i].pieces) {  // one, or none
        piece.digest = file->shard_digests()[i];
      }
    }
    const std::vector<std::string> texts = GatherTexts(comm_, ContentsText(own));
    Saved saved;
    GuardedOnRankZero([&] { return WriteCommonManifest(texts, saved); });
    if (!Publish()) {  // another job did, after Begin had looked
      const Saved there = LookAtExisting();
      if (!there.path.empty()) {
        Remove({temporary_});
        return there;
      }
      if (!Publish()) {
        Guarded([&] { return absl::AlreadyExistsError(absl::StrCat(path_, " exists again")); });
      }
    }
    return FromRankZero(saved);
  }

  // Called on rank 0. Renames older checkpoints that are to be removed, and returns their paths. An error
  // does not fail this save, because the other ranks wait to remove the paths.
  std::vector<std::string> SetAsideOlderOnes() {
    std::vector<std::string> doomed;
    const absl::Status status = WhileOurs([&] {
      return SetAsideOlder(files_, folder_.path, keep_, info_.step, self_, whole_, removed_steps_, doomed);
    });
    if (!status.ok()) {
      not_removed_.push_back(Text(status));
    }
    return doomed;
  }

  // Collective. `doomed` counts on rank 0.
  void Remove(const std::vector<std::string>& doomed) {
    for (std::string& reason : RemoveTogether(files_, comm_, doomed, [](const WorkProgress&) {})) {
      not_removed_.push_back(std::move(reason));
    }
  }

  Saved FromRankZero(const Saved& saved) {
    const Json json = Json::parse(TextOfRankZero(comm_, ToText(saved)));
    const auto digest = json.at("digest").get<std::string>();
    if (digest.empty()) {
      return {};
    }
    return {.path = path_, .bytes = json.at("bytes").get<int64_t>(), .manifest_digest = digest};
  }

  bool FromRankZero(bool answer) { return TextOfRankZero(comm_, answer ? "yes" : "no") == "yes"; }

  // Checks that rank 0 may write to the folder: it is the job's, and no other job owns it.
  absl::Status CheckOurs() {
    TANDEM_RETURN_IF_ERROR(CheckJobFolder(files_, folder_, self_));
    return CheckOwner(files_, folder_.path, self_);
  }

  // Called on rank 0. Runs `action`, a few calls of the file system, if rank 0 may write there. The
  // directory is not released before it is done.
  absl::Status WhileOurs(const std::function<absl::Status()>& action) {
    return folder_.tenure->Do([&] {
      return StatusOfPart([&]() -> absl::Status {
        TANDEM_RETURN_IF_ERROR(CheckOurs());
        return action();
      });
    });
  }

  // Runs `part`, which does not communicate, and agrees on its success. If it failed on a rank, the ranks
  // remove the temporary folder after all have stopped, and throw.
  template <typename Part>
  void Guarded(Part part) {
    absl::Status status = StatusOfPart(part);
    if (!status.ok() && !absl::IsAborted(status)) {
      // A folder that has gone away is a better reason than one of its files that is missing.
      const absl::Status there = StatusOfPart([&] { return CheckJobFolder(files_, folder_, self_); });
      status = there.ok() ? status : there;
    }
    try {
      AgreeOnSuccess(comm_, status);
    } catch (const DirectoryLost&) {
      throw;  // the new owner removes what is left of ours
    } catch (const CheckpointError& error) {
      const absl::Status owned = comm_.rank() == 0 ? CheckOurs() : absl::OkStatus();
      // A new owner may be the reason of the failure; then it removes the temporary folder.
      AgreeOnSuccess(comm_, absl::IsAborted(owned) ? owned : absl::OkStatus());
      std::vector<std::string> doomed;
      if (owned.ok()) {
        doomed.push_back(temporary_);
      }
      const std::vector<std::string> not_removed =
          RemoveTogether(files_, comm_, doomed, [](const WorkProgress&) {});
      const std::string reason = TextOfRankZero(comm_, absl::StrJoin(not_removed, "; "));
      if (reason.empty()) {
        throw;
      }
      throw CheckpointError(
          absl::StrCat(error.what(), "; and its temporary files are still there: ", reason));
    }
  }

  template <typename Part>
  void GuardedOnRankZero(Part part) {
    Guarded([&]() -> absl::Status { return comm_.rank() == 0 ? part() : absl::OkStatus(); });
  }

  // Removes what earlier saves left. Returns whether no folder has the step's name yet.
  bool Begin() {
    bool is_new = true;
    std::vector<std::string> doomed;
    Guarded([&]() -> absl::Status {
      if (comm_.rank() != 0) {
        return CheckJobFolder(files_, folder_, self_);
      }
      TANDEM_RETURN_IF_ERROR(WhileOurs([&]() -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(doomed, SetAsideTemporaries(files_, folder_.path, self_));
        return absl::OkStatus();
      }));
      TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(files_, folder_.path));
      is_new = std::find(steps.begin(), steps.end(), info_.step) == steps.end();
      return absl::OkStatus();
    });
    Remove(doomed);
    return FromRankZero(is_new);
  }

  // Returns the checkpoint that has the step's name, if it is valid; it then stays.
  Saved LookAtExisting() {
    const absl::StatusOr<Manifest> manifest =
        VerifyTogether(files_, comm_, path_, [](const WorkProgress&) {});
    if (IsDamage(manifest.status())) {
      MoveAside();
      return {};
    }
    Saved there;
    GuardedOnRankZero([&] { return JudgeExisting(manifest, there); });
    return FromRankZero(there);
  }

  // Renames a damaged checkpoint that has the step's name: it can never be loaded, and this step cannot be
  // saved while it has the name. Rank 0 checks the owner before each change, because the work before it took
  // time.
  void MoveAside() {
    const std::string aside = absl::StrCat(path_, ".damaged.", info_.attempt);
    GuardedOnRankZero([&]() -> absl::Status {
      TANDEM_RETURN_IF_ERROR(CheckOurs());
      whole_.erase(info_.step);
      return absl::OkStatus();
    });
    const std::vector<std::string> not_removed =
        RemoveTogether(files_, comm_, {aside}, [](const WorkProgress&) {});
    GuardedOnRankZero([&]() -> absl::Status {
      if (!not_removed.empty()) {
        return absl::UnavailableError(not_removed.front());
      }
      return WhileOurs([&] { return files_.Rename(path_, aside); });
    });
  }

  absl::Status JudgeExisting(const absl::StatusOr<Manifest>& manifest, Saved& there) {
    if (absl::IsUnimplemented(manifest.status())) {
      return absl::UnimplementedError(
          absl::StrCat(path_, " exists already: ", manifest.status().message(), ", or move it away"));
    }
    if (!manifest.ok()) {
      return absl::UnavailableError(absl::StrCat(
          path_, " exists already and cannot be read now, which does not say that it is damaged: ",
          manifest.status().message()));
    }
    TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, files_.Size(absl::StrCat(path_, "/", kManifestName)));
    if (manifest->info.job != info_.job) {  // it has other numbers
      return absl::FailedPreconditionError(absl::StrCat(
          path_, " is of job ", manifest->info.job, "; move it away, or use another checkpoint.directory"));
    }
    there = {
        .path = path_, .bytes = TotalBytes(manifest->files) + bytes, .manifest_digest = manifest->digest};
    return absl::OkStatus();
  }

  // Called on rank 0.
  absl::Status WriteCommonManifest(const std::vector<std::string>& texts, Saved& saved) {
    Manifest manifest{.info = info_};
    TANDEM_RETURN_IF_ERROR(Collect(texts, manifest));
    const ManifestText text = WriteManifest(manifest);
    TANDEM_RETURN_IF_ERROR(files_.Write(absl::StrCat(temporary_, "/", kManifestName), text.text));
    TANDEM_RETURN_IF_ERROR(files_.SyncFolder(temporary_));
    saved = {.path = path_,
             .bytes = TotalBytes(manifest.files) + static_cast<int64_t>(text.text.size()),
             .manifest_digest = text.digest};
    return absl::OkStatus();
  }

  // Renames the folder, which makes it a checkpoint. Returns false if the name is taken.
  bool Publish() {
    bool is_free = true;
    GuardedOnRankZero([&]() -> absl::Status {
      const absl::Status published = WhileOurs([&] { return files_.Publish(temporary_, path_); });
      if (absl::IsAlreadyExists(published)) {
        is_free = false;
        return absl::OkStatus();
      }
      TANDEM_RETURN_IF_ERROR(published);
      whole_.insert(info_.step);  // it is there, even if the sync fails
      return files_.SyncFolder(folder_.path);
    });
    return FromRankZero(is_free);
  }

  platform::Files& files_;
  comm::Communicator& comm_;
  const JobFolder& folder_;
  const int keep_;
  const Owner& self_;
  const Info& info_;
  const std::vector<Shard>& shards_;
  WholeSteps& whole_;  // used on rank 0
  const OnCommitted& committed_;
  const std::string path_;
  const std::string temporary_;
  std::vector<int64_t> removed_steps_;    // on rank 0, as in Saved
  std::vector<std::string> not_removed_;  // on rank 0, as in Saved
};

}  // namespace

Saved Save(platform::Files& files, comm::Communicator& comm, const JobFolder& folder, int keep,
           const Owner& self, const Info& info, const std::vector<Shard>& shards, WholeSteps& whole,
           const OnCommitted& committed) {
  return Saving(files, comm, folder, keep, self, info, shards, whole, committed).Run();
}

}  // namespace tandem::checkpoint
