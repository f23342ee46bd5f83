// SPDX-License-Identifier: Apache-2.0
#include "trainer/requests.h"

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "trainer/failure.h"

namespace tandem::trainer {

void RequestBox::Add(uint32_t bits, uint64_t id) {
  const absl::MutexLock lock(&mu_);
  if (id != 0) {
    if (!seen_.insert(id).second) {
      return;
    }
    waiting_.push_back(id);
  }
  bits_ |= bits;
}

uint32_t RequestBox::Take() {
  const absl::MutexLock lock(&mu_);
  in_flight_.insert(in_flight_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  return std::exchange(bits_, 0);
}

void RequestBox::AddProfile(const ProfileSteps& asked) {
  const absl::MutexLock lock(&mu_);
  if (seen_profiles_.insert(asked.id).second) {
    profiles_.push_back(asked);
  }
}

ProfileSteps RequestBox::WantedProfile() {
  const absl::MutexLock lock(&mu_);
  return profiles_.empty() ? ProfileSteps{} : profiles_.front();
}

void RequestBox::ProfileAgreed(uint64_t id) {
  const absl::MutexLock lock(&mu_);
  seen_profiles_.insert(id);
  std::erase_if(profiles_, [id](const ProfileSteps& asked) { return asked.id == id; });
}

std::vector<uint64_t> RequestBox::Finish() {
  const absl::MutexLock lock(&mu_);
  return std::exchange(in_flight_, {});
}

std::vector<uint64_t> RequestBox::FinishAll() {
  const absl::MutexLock lock(&mu_);
  std::vector<uint64_t> ids = std::exchange(in_flight_, {});
  ids.insert(ids.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  bits_ = 0;
  return ids;
}

Agreed AgreedOf(const fsdp::NormOutcome& outcome) {
  return {.checkpoint = (outcome.requests & kRequestCheckpoint) != 0,
          .stop = (outcome.requests & kRequestStop) != 0,
          .profile = ProfileSteps::FromNumber(outcome.profile)};
}

Agreed AgreeOnRequests(comm::Communicator& comm, RequestBox& requests, int64_t step) {
  std::array mine = {fsdp::NormTerms{.requests = static_cast<double>(requests.Take()),
                                     .profile = requests.WantedProfile().ToNumber()}};
  std::vector<fsdp::NormTerms> all(comm.size());
  try {
    comm.AllGather(device::MemoryOf(mine), device::MemoryOf(all));
  } catch (...) {
    throw InstructionError(std::current_exception(), step, "requests", comm.name());
  }
  return AgreedOf(fsdp::AgreeOnNorm(all.data(), comm.size(), {}));
}

}  // namespace tandem::trainer
