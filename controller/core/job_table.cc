// SPDX-License-Identifier: Apache-2.0
#include "controller/core/job_table.h"

#include <filesystem>

#include "platform/check.h"
#include "proto/reasons.h"

namespace tandem::controller {
namespace {

// Returns the one spelling in which a folder's path is compared.
std::string Folder(const std::string& path) {
  return (std::filesystem::path(path) / "").lexically_normal().string();
}

// Inserts `value` into the set, or removes it.
template <typename Set>
void SetMember(bool is_member, Set& set, typename Set::value_type value) {
  if (is_member) {
    set.insert(std::move(value));
  } else {
    set.erase(value);
  }
}

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool HasRanks(v1::JobState state) {
  return state == v1::JOB_STATE_ADMITTED || state == v1::JOB_STATE_STARTING ||
         state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_STOPPING;
}

void JobTable::Add(JobEntry entry) {
  const std::string id = entry.job.id();
  const auto [it, added] = jobs_.emplace(id, std::move(entry));
  TANDEM_CHECK(added, "a job is added once");
  Index(it->second);
}

void JobTable::Remove(const std::string& id) {
  if (const auto it = jobs_.find(id); it != jobs_.end()) {
    Unindex(it->second);
    jobs_.erase(it);
  }
}

void JobTable::RemoveEnded() {
  while (!ended_.empty()) {
    Remove(std::string(*ended_.begin()));
  }
}

void JobTable::SetIndexed(const JobEntry& entry, bool is_indexed) {
  const v1::Job& job = entry.job;
  if (!job.request_id().empty()) {
    SetMember(is_indexed, requests_, {job.owner(), job.request_id(), job.id()});
  }
  if (IsTerminal(job.state())) {
    SetMember(is_indexed, ended_, job.id());
    return;
  }
  SetMember(is_indexed, live_names_, {job.name(), job.id()});
  if (const std::string& directory = job.resolved().checkpoint().directory(); !directory.empty()) {
    SetMember(is_indexed, live_folders_, {Folder(directory), job.id()});
  }
  if (HasRanks(job.state())) {
    SetMember(is_indexed, with_ranks_, job.id());
  }
  if (job.state() == v1::JOB_STATE_QUEUED) {
    SetMember(is_indexed, queue_, {entry.runtime.submitted_seq(), job.id()});
    if (job.reason() != proto::ReasonCode("BehindOthers") || job.message() != kBehindOthersMessage) {
      SetMember(is_indexed, queue_to_update_, {entry.runtime.submitted_seq(), job.id()});
    }
  }
}

const v1::Job* JobTable::FirstOf(const KeyedIds& index, const std::string& key) const {
  const auto it = index.lower_bound({key, ""});
  return it == index.end() || it->first != key ? nullptr : &jobs_.at(it->second).job;
}

const v1::Job* JobTable::FindRequest(const std::string& owner, const std::string& request_id) const {
  if (request_id.empty()) {
    return nullptr;
  }
  const auto it = requests_.lower_bound({owner, request_id, ""});
  const bool found = it != requests_.end() && std::get<0>(*it) == owner && std::get<1>(*it) == request_id;
  return found ? &jobs_.at(std::get<2>(*it)).job : nullptr;
}

const v1::Job* JobTable::FindLiveByName(const std::string& name) const { return FirstOf(live_names_, name); }

const v1::Job* JobTable::FindLiveByFolder(const std::string& directory) const {
  return directory.empty() ? nullptr : FirstOf(live_folders_, Folder(directory));
}

}  // namespace tandem::controller
