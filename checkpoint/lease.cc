// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/lease.h"

#include <utility>

#include "platform/log.h"

namespace tandem::checkpoint {

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
    platform::Log(platform::LogLevel::kWarning, "the checkpoint directory cannot be given back",
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
  if (!there.ok()) {  // while it is away from here, other machines may have it, and another job there
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
  if (owned.ok() || unseen < kPatience) {  // else the next look must not take this one for the last
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
