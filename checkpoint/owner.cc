// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/owner.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "checkpoint/retention.h"
#include "checkpoint/start_files.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostOwnerBytes = 64 << 10;
constexpr char kRemedy[] = "give every job a checkpoint.directory of its own";

std::string PathIn(const std::string& directory) { return absl::StrCat(directory, "/", kOwnerName); }

// Returns a path to which no other job writes, even at the same time.
std::string TemporaryIn(const std::string& directory, const Owner& owner) {
  return absl::StrCat(directory, "/", kNextOwnerPrefix, owner.job, ".", owner.attempt, ".tmp");
}

std::string ToJson(const Owner& owner) {
  return Json{{"job", owner.job}, {"name", owner.name}, {"attempt", owner.attempt}, {"host", owner.host}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// A text that does not name an owner counts as another job's, because a person may have written it.
Owner ParseOwner(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return {.job = json.at("job").get<std::string>(),
            .name = json.at("name").get<std::string>(),
            .attempt = json.at("attempt").get<int>(),
            .host = json.at("host").get<std::string>()};
  } catch (const Json::exception&) {
    return {.job = "unknown", .name = "", .host = ""};
  }
}

bool IsSame(const Owner& owner, const Owner& self) {
  return owner.job == self.job && owner.attempt == self.attempt;
}

bool IsLater(const Owner& owner, const Owner& self) {
  return owner.job == self.job && owner.attempt > self.attempt;
}

bool IsOther(const Owner& owner, const Owner& self) { return owner.job != self.job || IsLater(owner, self); }

absl::Status Lost(const std::string& directory, const Owner& owner, const Owner& self) {
  return absl::AbortedError(absl::StrCat(
      "checkpoint.directory ", directory, " belongs to ", ToText(owner), " now; ", ToText(self),
      IsLater(owner, self) ? " ends" : absl::StrCat(" can no longer save there and ends: ", kRemedy)));
}

// What one look at the owner's file found. If the owner lives, the next look finds something else.
struct Sighting {
  Owner owner;
  absl::Time renewed;
  bool SameAs(const Sighting& other) const { return IsSame(owner, other.owner) && renewed == other.renewed; }
};

absl::StatusOr<Sighting> Look(platform::Files& files, const std::string& directory) {
  TANDEM_ASSIGN_OR_RETURN(const Owner owner, ReadOwner(files, directory));
  TANDEM_ASSIGN_OR_RETURN(const absl::Time renewed, files.ModificationTime(PathIn(directory)));
  return Sighting{.owner = owner, .renewed = renewed};
}

absl::Status ReplaceOwner(platform::Files& files, const std::string& directory, const Owner& self) {
  const std::string temporary = TemporaryIn(directory, self);
  TANDEM_RETURN_IF_ERROR(files.Write(temporary, ToJson(self)));
  return files.Rename(temporary, PathIn(directory));
}

// One attempt to become the owner.
class Newcomer {
 public:
  Newcomer(platform::Files& files, const std::string& directory, const Owner& self,
           const std::function<void()>& pause)
      : files_(files), directory_(directory), self_(self), pause_(pause) {}

  // Does what TakeOwnership promises.
  absl::StatusOr<std::vector<std::string>> Take() {
    while (true) {
      const absl::StatusOr<Sighting> seen = Look(files_, directory_);
      if (absl::IsNotFound(seen.status())) {
        const absl::Status published = PublishOwner(files_, directory_, self_);
        if (published.ok()) {
          return std::vector<std::string>();
        }
        if (!absl::IsAlreadyExists(published)) {
          return published;
        }
        TANDEM_RETURN_IF_ERROR(WaitForSight());
        continue;
      }
      if (!seen.ok()) {
        return seen.status();
      }
      if (IsLater(seen->owner, self_)) {
        return Lost(directory_, seen->owner, self_);
      }
      if (!IsOther(seen->owner, self_)) {
        if (!replaced_) {
          TANDEM_RETURN_IF_ERROR(ReplaceOwner(files_, directory_, self_));
          return std::vector<std::string>();
        }
        // An owner that was stopped can then not publish what it has written when it wakes up.
        return SetAsideTemporaries(files_, directory_, self_);
      }
      if (first_.has_value() && !first_->SameAs(*seen)) {
        return InUse(seen->owner);
      }
      first_ = *seen;
      TANDEM_RETURN_IF_ERROR(WaitForRenewal());
    }
  }

 private:
  // The name is taken, but could not be read: its owner came after the look, or it is a link to nothing.
  absl::Status WaitForSight() {
    if (num_unseen_ * kRenewal >= kPatience) {
      return absl::InvalidArgumentError(
          absl::StrCat(PathIn(directory_), " exists but cannot be read (a dangling link?); remove it"));
    }
    if (num_unseen_++ > 0) {
      pause_();
    }
    return absl::OkStatus();
  }

  // Gives the owner time to renew its file. If it had enough time, replaces it, and then gives any other
  // newcomer that found it dead time to replace this one: the last newcomer has the directory.
  absl::Status WaitForRenewal() {
    const std::string temporary = TemporaryIn(directory_, self_);
    if (quiet_ >= kPatience) {
      TANDEM_RETURN_IF_ERROR(files_.Rename(temporary, PathIn(directory_)));
      replaced_ = true;
    } else {
      TANDEM_RETURN_IF_ERROR(files_.Write(temporary, ToJson(self_)));
    }
    pause_();
    quiet_ += kRenewal;
    return absl::OkStatus();
  }

  absl::Status InUse(const Owner& owner) const {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint.directory ", directory_, " is in use by ", ToText(owner), ", which is alive; ",
        ToText(self_), " cannot save there: ", kRemedy, ", or end the other job first"));
  }

  platform::Files& files_;
  const std::string& directory_;
  const Owner& self_;
  const std::function<void()>& pause_;
  int num_unseen_ = 0;
  std::optional<Sighting> first_;
  absl::Duration quiet_;  // how long the file has not changed since first_
  bool replaced_ = false;
};

}  // namespace

std::string ToText(const Owner& owner) {
  std::string text = "job " + owner.job;
  const bool named = !owner.name.empty() && owner.name != owner.job;
  if (named || owner.attempt > 1) {
    absl::StrAppend(&text, " (", named ? owner.name : "", named && owner.attempt > 1 ? ", " : "",
                    owner.attempt > 1 ? absl::StrCat("attempt ", owner.attempt) : "", ")");
  }
  if (!owner.host.empty()) {
    absl::StrAppend(&text, " on host ", owner.host);
  }
  return text;
}

absl::StatusOr<Owner> ReadOwner(platform::Files& files, const std::string& directory) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, files.Size(PathIn(directory)));
  if (bytes > kMostOwnerBytes) {
    return ParseOwner("");
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text, files.Read(PathIn(directory)));
  return ParseOwner(text);
}

absl::StatusOr<bool> HoldsNothing(platform::Files& files, const std::string& directory) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  return std::all_of(names.begin(), names.end(), CountsAsNothing);
}

absl::Status PublishOwner(platform::Files& files, const std::string& directory, const Owner& self) {
  const std::string temporary = TemporaryIn(directory, self);
  absl::Status status = files.Write(temporary, ToJson(self));
  if (status.ok()) {
    status = files.Publish(temporary, PathIn(directory));
  }
  if (!status.ok()) {
    files.RemoveAll(temporary).IgnoreError();  // the first error counts
  }
  return status;
}

absl::StatusOr<std::vector<std::string>> TakeOwnership(platform::Files& files, const std::string& directory,
                                                       const Owner& self,
                                                       const std::function<void()>& pause) {
  absl::StatusOr<std::vector<std::string>> doomed = Newcomer(files, directory, self, pause).Take();
  if (!doomed.ok()) {
    files.RemoveAll(TemporaryIn(directory, self)).IgnoreError();  // the first error counts
  }
  return doomed;
}

absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self) {
  TANDEM_RETURN_IF_ERROR(CheckOwner(files, directory, self));
  return files.Touch(PathIn(directory));
}

absl::Status RestoreOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                              absl::Duration unseen) {
  if (unseen >= kPatience) {
    TANDEM_ASSIGN_OR_RETURN(const bool empty, HoldsNothing(files, directory));
    if (!empty) {
      return absl::AbortedError(
          absl::StrCat("checkpoint.directory ", directory, " no longer has an owner: ", ToText(self),
                       " could not look for ", absl::ToInt64Seconds(unseen),
                       " s, in which another job may have saved there; it ends: submit it again with "
                       "checkpoint: {resume: newest}"));
    }
  }
  return PublishOwner(files, directory, self);
}

bool Owns(platform::Files& files, const std::string& directory, const Owner& self) {
  const absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  return owner.ok() && IsSame(*owner, self);
}

absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self) {
  const absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  if (owner.ok() && IsSame(*owner, self)) {
    return files.RemoveAll(PathIn(directory));
  }
  return absl::IsNotFound(owner.status()) ? absl::OkStatus() : owner.status();
}

absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self) {
  const absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  if (owner.ok() && IsOther(*owner, self)) {
    return Lost(directory, *owner, self);
  }
  return absl::IsNotFound(owner.status()) ? absl::OkStatus() : owner.status();
}

}  // namespace tandem::checkpoint
