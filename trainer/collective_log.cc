// SPDX-License-Identifier: Apache-2.0
#include "trainer/collective_log.h"

#include <algorithm>
#include <atomic>

#include "comm/communicator.h"
#include "platform/check.h"
#include "schedules/check/together.h"

namespace tandem::trainer {
namespace {

// The count of an instruction whose call has not returned: how many collectives it starts is not known yet.
constexpr uint64_t kNotKnown = UINT64_MAX;

// The check refuses a program that uses more communicators.
static_assert(schedules::kMostCommunicators <= link::SharedPage::kMaxCommunicators);

}  // namespace

CollectiveLog::CollectiveLog(comm::Communicators& communicators, link::SharedPage& page)
    : communicators_(communicators), page_(page) {
  TANDEM_CHECK(communicators.size() <= size_t{link::SharedPage::kMaxCommunicators},
               "the shared page counts the collectives of all programs' communicators");
  page_.num_communicators.store(static_cast<int32_t>(communicators.size()), std::memory_order_relaxed);
}

void CollectiveLog::Begin(int parity, int64_t number) {
  const absl::MutexLock lock(&mu_);
  runs_[parity].number = number;
  runs_[parity].entries.clear();
}

size_t CollectiveLog::Starts(int parity, int use, const schedules::Instruction& instruction, int64_t step) {
  comm::Communicator& communicator = communicators_[use];
  page_.collectives[use].store(communicator.num_collectives() + 1, std::memory_order_relaxed);
  const absl::MutexLock lock(&mu_);
  std::vector<Entry>& entries = runs_[parity].entries;
  entries.push_back(
      {.communicator = &communicator, .last_sequence = kNotKnown, .instruction = &instruction, .step = step});
  return entries.size() - 1;
}

void CollectiveLog::Started(int parity, int use, size_t entry) {
  const uint64_t sequence = communicators_[use].num_collectives();
  page_.collectives[use].store(sequence, std::memory_order_relaxed);
  const absl::MutexLock lock(&mu_);
  runs_[parity].entries[entry].last_sequence = sequence;
}

std::optional<CollectiveLog::Entry> CollectiveLog::OldestPending() const {
  std::vector<Entry> entries;
  {
    const absl::MutexLock lock(&mu_);
    const size_t older = runs_[0].number < runs_[1].number ? 0 : 1;
    entries = runs_[older].entries;
    const std::vector<Entry>& newer = runs_[1 - older].entries;
    entries.insert(entries.end(), newer.begin(), newer.end());
  }
  const auto pending = std::find_if(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.last_sequence > entry.communicator->num_ended();
  });
  return pending == entries.end() ? std::nullopt : std::optional<Entry>(*pending);
}

}  // namespace tandem::trainer
