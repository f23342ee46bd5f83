// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/job_folder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::Status Tenure::Do(const std::function<absl::Status()>& action) {
  const absl::MutexLock lock(&mu_);
  return ended_ ? absl::CancelledError("this process is ending and has released the checkpoint directory")
                : action();
}

void Tenure::End() {
  const absl::MutexLock lock(&mu_);
  ended_ = true;
}

namespace {

std::string Named(const JobFolder& folder) { return absl::StrCat("checkpoint.directory ", folder.path); }

absl::Status CannotBeLookedAt(const JobFolder& folder, const absl::Status& error) {
  return absl::UnavailableError(absl::StrCat(Named(folder), " cannot be reached (", error.message(),
                                             "), so nothing is written; the next save tries again"));
}

}  // namespace

absl::StatusOr<JobFolder> FindJobFolder(platform::Files& files, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const platform::FolderId id, files.IdOfFolder(path));
  return JobFolder{.path = path, .id = id};
}

absl::Status CheckJobFolder(platform::Files& files, const JobFolder& folder, const Owner& self) {
  const absl::StatusOr<platform::FolderId> now = files.IdOfFolder(folder.path);
  if (now.ok() && *now == folder.id) {
    return absl::OkStatus();
  }
  if (absl::IsNotFound(now.status())) {
    return absl::NotFoundError(absl::StrCat(
        Named(folder),
        " is no longer there (its file system was unmounted, or the folder was renamed or removed), so "
        "nothing is written; bring it back before the next save, or make it anew where it was removed"));
  }
  if (!now.ok()) {
    return CannotBeLookedAt(folder, now.status());
  }
  const absl::StatusOr<Owner> owner = ReadOwner(files, folder.path);
  if (owner.ok() && owner->job == self.job && owner->attempt == self.attempt) {
    return absl::OkStatus();
  }
  if (!owner.ok() && !absl::IsNotFound(owner.status())) {
    return CannotBeLookedAt(folder, owner.status());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      Named(folder), " is another folder than at the start of the attempt (a file system was mounted or ",
      "unmounted there, or the folder was replaced)",
      owner.ok() ? absl::StrCat(" and belongs to ", ToText(*owner)) : "",
      ", so nothing is written; bring the first one back before the next save, or, if it is gone, leave an "
      "empty one there, on the same file system"));
}

absl::Status TakeFolderMadeAgain(platform::Files& files, JobFolder& folder, const Owner& self) {
  TANDEM_ASSIGN_OR_RETURN(const platform::FolderId now, files.IdOfFolder(folder.path));
  if (now.device != folder.id.device || now.mount != folder.id.mount) {
    return absl::FailedPreconditionError(absl::StrCat(Named(folder), " is on another mount"));
  }
  TANDEM_ASSIGN_OR_RETURN(const bool empty, HoldsNothing(files, folder.path));
  if (!empty) {
    return absl::FailedPreconditionError(absl::StrCat(Named(folder), " is not empty"));
  }
  TANDEM_RETURN_IF_ERROR(PublishOwner(files, folder.path, self));
  folder.id = now;
  return absl::OkStatus();
}

Lease::Lease(platform::Files& files, JobFolder folder, Owner self,
             std::function<void(const std::string&)> lost, absl::Duration period,
             const platform::Clock& clock)
    : files_(files),
      folder_(std::move(folder)),
      self_(std::move(self)),
      lost_(std::move(lost)),
      period_(period),
      clock_(clock),
      seen_(clock.Now()),
      thread_([this] { Run(); }) {}

Lease::~Lease() { Stop(); }

void Lease::Stop() {
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  stopped_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Lease::Release() {
  Stop();
  folder_.tenure->End();
  const absl::Status released = ReleaseOwnership(files_, folder_.path, self_);
  if (!released.ok()) {
    platform::Log(platform::LogLevel::kWarning, "the checkpoint directory cannot be released",
                  {{"error", std::string(released.message())}});
  }
}

void HeldLease::Hold(std::unique_ptr<Lease> lease) {
  const absl::MutexLock lock(&mu_);
  lease_ = std::move(lease);
}

void HeldLease::Release() {
  const absl::MutexLock lock(&mu_);
  if (lease_ != nullptr) {
    lease_->Release();
  }
  lease_.reset();
}

absl::Status Lease::Renew() {
  const absl::Status there = CheckJobFolder(files_, folder_, self_);
  if (absl::IsFailedPrecondition(there)) {
    const absl::Status taken = TakeFolderMadeAgain(files_, folder_, self_);
    if (!taken.ok()) {
      return absl::IsFailedPrecondition(taken) ? there : taken;
    }
    platform::Log(platform::LogLevel::kWarning,
                  "the checkpoint directory was removed and made again; saves go there from now on",
                  {{"directory", folder_.path}});
    seen_ = clock_.Now();
    return taken;
  }
  if (!there.ok()) {  // while it is unmounted here, other machines may have it, and another job may own it
    return there;
  }
  const absl::Status renewed = RenewOwnership(files_, folder_.path, self_);
  if (!renewed.ok() && !absl::IsNotFound(renewed)) {
    return renewed;
  }
  const absl::Time now = clock_.Now();
  const absl::Duration unseen = now - seen_;
  absl::Status owned = renewed;
  if (absl::IsNotFound(renewed)) {
    owned = RestoreOwnership(files_, folder_.path, self_, unseen);
  }
  if (owned.ok() || unseen < kPatience) {  // otherwise this look does not count as the last
    seen_ = now;
  }
  return owned;
}

void Lease::Run() {
  bool complained = false;
  while (true) {
    {
      const absl::MutexLock lock(&mu_);
      if (stopped_.AwaitFor(mu_, period_,
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; })) {
        return;
      }
    }
    const absl::Status renewed = Renew();
    if (absl::IsAborted(renewed)) {
      lost_(std::string(renewed.message()));
      return;
    }
    // A directory that cannot be reached for a while is not lost. Saves report their own errors.
    if (!renewed.ok() && !complained) {
      platform::Log(platform::LogLevel::kWarning, "the checkpoint directory's ownership cannot be renewed",
                    {{"error", std::string(renewed.message())}});
    }
    complained = !renewed.ok();
  }
}

}  // namespace tandem::checkpoint
