#include "checkpoint/owner.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"

namespace tandem::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kRemedy[] = "give every job a checkpoint.directory of its own";

std::string PathIn(const std::string& directory) { return directory + "/.owner"; }

// No two jobs write to the same one, however close they come.
std::string TemporaryIn(const std::string& directory, const Owner& owner) {
  return absl::StrCat(directory, "/.owner.", owner.job, ".", owner.attempt, ".tmp");
}

std::string ToJson(const Owner& owner) {
  return Json{{"job", owner.job}, {"name", owner.name}, {"attempt", owner.attempt}, {"host", owner.host}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// A text that is no owner's names nobody, but it is somebody's: it counts as another job's.
Owner FromJson(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return {.job = json.at("job").get<std::string>(),
            .name = json.at("name").get<std::string>(),
            .attempt = json.at("attempt").get<int>(),
            .host = json.at("host").get<std::string>()};
  } catch (const Json::exception&) {
    return {.job = "unknown"};
  }
}

bool IsLater(const Owner& owner, const Owner& self) {
  return owner.job == self.job && owner.attempt > self.attempt;
}

bool IsOther(const Owner& owner, const Owner& self) { return owner.job != self.job || IsLater(owner, self); }

absl::Status Lost(const std::string& directory, const Owner& owner, const Owner& self) {
  return absl::AbortedError(absl::StrCat(
      "checkpoint.directory ", directory, " belongs to ", ToText(owner), " now; ", ToText(self),
      IsLater(owner, self) ? " ends" : absl::StrCat(" cannot save there any more and ends: ", kRemedy)));
}

// One look at an owner: an owner that lives makes the next look differ.
struct Sighting {
  Owner owner;
  absl::Time renewed;
  bool SameAs(const Sighting& other) const {
    return owner.job == other.owner.job && owner.attempt == other.owner.attempt && renewed == other.renewed;
  }
};

absl::StatusOr<Sighting> Look(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  if (!owner.ok()) return owner.status();
  const absl::StatusOr<absl::Time> renewed = files.ModificationTime(PathIn(directory));
  if (!renewed.ok()) return renewed.status();
  return Sighting{.owner = *owner, .renewed = *renewed};
}

// AlreadyExists where the directory has an owner.
absl::Status PublishOwner(platform::Files& files, const std::string& directory, const Owner& self) {
  const std::string temporary = TemporaryIn(directory, self);
  absl::Status status = files.Write(temporary, ToJson(self));
  if (status.ok()) status = files.Publish(temporary, PathIn(directory));
  if (!status.ok()) files.RemoveAll(temporary).IgnoreError();  // the first error is the one to tell
  return status;
}

absl::Status ReplaceOwner(platform::Files& files, const std::string& directory, const Owner& self) {
  const std::string temporary = TemporaryIn(directory, self);
  absl::Status status = files.Write(temporary, ToJson(self));
  if (status.ok()) status = files.Rename(temporary, PathIn(directory));
  if (!status.ok()) files.RemoveAll(temporary).IgnoreError();
  return status;
}

}  // namespace

std::string ToText(const Owner& owner) {
  std::string text = "job " + owner.job;
  const bool named = !owner.name.empty() && owner.name != owner.job;
  if (named || owner.attempt > 1) {
    absl::StrAppend(&text, " (", named ? owner.name : "", named && owner.attempt > 1 ? ", " : "",
                    owner.attempt > 1 ? absl::StrCat("attempt ", owner.attempt) : "", ")");
  }
  if (!owner.host.empty()) absl::StrAppend(&text, " on host ", owner.host);
  return text;
}

absl::StatusOr<Owner> ReadOwner(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<std::string> text = files.Read(PathIn(directory));
  if (!text.ok()) return text.status();
  return FromJson(*text);
}

absl::Status TakeOwnership(platform::Files& files, const std::string& directory, const Owner& self,
                           const std::function<void()>& pause) {
  if (absl::Status status = files.CreateFolders(directory); !status.ok()) return status;
  std::optional<Sighting> first;
  absl::Duration quiet;
  while (true) {
    const absl::StatusOr<Sighting> seen = Look(files, directory);
    if (absl::IsNotFound(seen.status())) {
      const absl::Status published = PublishOwner(files, directory, self);
      if (!absl::IsAlreadyExists(published)) return published;
      continue;  // somebody came since: look at that one
    }
    if (!seen.ok()) return seen.status();
    if (IsLater(seen->owner, self)) return Lost(directory, seen->owner, self);
    if (!IsOther(seen->owner, self)) return ReplaceOwner(files, directory, self);
    if (!first) {
      first = *seen;
    } else if (!first->SameAs(*seen)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "checkpoint.directory ", directory, " is in use by ", ToText(seen->owner), ", which is alive; ",
          ToText(self), " cannot save there: ", kRemedy, ", or end the other job first"));
    }
    if (quiet >= kPatience) return ReplaceOwner(files, directory, self);
    pause();
    quiet += kRenewal;
  }
}

absl::Status RenewOwnership(platform::Files& files, const std::string& directory, const Owner& self) {
  absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  if (absl::IsNotFound(owner.status())) {
    const absl::Status published = PublishOwner(files, directory, self);
    if (!absl::IsAlreadyExists(published)) return published;
    owner = ReadOwner(files, directory);
  }
  if (!owner.ok()) return owner.status();
  if (IsOther(*owner, self)) return Lost(directory, *owner, self);
  return files.Touch(PathIn(directory));
}

absl::Status ReleaseOwnership(platform::Files& files, const std::string& directory, const Owner& self) {
  const absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok()) return owner.status();
  if (owner->job != self.job || owner->attempt != self.attempt) return absl::OkStatus();
  return files.RemoveAll(PathIn(directory));
}

absl::Status CheckOwner(platform::Files& files, const std::string& directory, const Owner& self) {
  const absl::StatusOr<Owner> owner = ReadOwner(files, directory);
  if (absl::IsNotFound(owner.status())) return absl::OkStatus();
  if (!owner.ok()) return owner.status();
  return IsOther(*owner, self) ? Lost(directory, *owner, self) : absl::OkStatus();
}

}  // namespace tandem::checkpoint
