// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "controller/runtime.pb.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// One row of the store: a job, and what only the controller needs to know about it.
struct JobEntry {
  v1::Job job;
  JobRuntime runtime;
};

// SUCCEEDED, FAILED, CANCELLED.
bool IsTerminal(v1::JobState state);

// ADMITTED to STOPPING: there may be ranks.
bool HasRanks(v1::JobState state);

// The message of proto::reason::kBehindOthers.
inline constexpr char kBehindOthersMessage[] =
    "an earlier job waits for slots; jobs start in the order of their submission (`tandem get jobs --state "
    "QUEUED` lists them)";

// Jobs by id, with indexes for everything that decisions look up, so that no decision scans all jobs. The
// indexes follow from the jobs. Read it like a map; change it only through Add, Change, Remove and
// RemoveEnded.
class JobTable {
 public:
  using Jobs = std::map<std::string, JobEntry>;
  using Tickets = std::set<std::pair<int64_t, std::string>>;  // (submitted_seq, id)

  Jobs::const_iterator begin() const { return jobs_.begin(); }
  Jobs::const_iterator end() const { return jobs_.end(); }
  Jobs::const_iterator find(const std::string& id) const { return jobs_.find(id); }
  const JobEntry& at(const std::string& id) const { return jobs_.at(id); }
  bool contains(const std::string& id) const { return jobs_.contains(id); }
  size_t size() const { return jobs_.size(); }

  // Requires an id that no job of the table has.
  void Add(JobEntry entry);

  // Calls change(JobEntry&), which leaves the id as it is. Requires a job of that id.
  template <typename Changing>
  void Change(const std::string& id, Changing change) {
    JobEntry& entry = jobs_.at(id);
    Unindex(entry);
    change(entry);
    Index(entry);
  }

  // Does nothing if there is no such job.
  void Remove(const std::string& id);

  void RemoveEnded();

  // Jobs that have not ended.
  size_t num_live() const { return jobs_.size() - ended_.size(); }

  // QUEUED jobs in the order of submission; and those of them whose reason and message are not kBehindOthers
  // and kBehindOthersMessage.
  const Tickets& queue() const { return queue_; }
  const Tickets& queue_to_update() const { return queue_to_update_; }

  // Ids of the jobs with ranks (HasRanks), in their order.
  const std::set<std::string>& with_ranks() const { return with_ranks_; }

  // The job that the owner has submitted with that request id; null: none, or the id is empty.
  const v1::Job* FindRequest(const std::string& owner, const std::string& request_id) const;

  // The live job of that name, or that saves its checkpoints in that folder; null: none.
  const v1::Job* FindLiveByName(const std::string& name) const;
  const v1::Job* FindLiveByFolder(const std::string& directory) const;

 private:
  using KeyedIds = std::set<std::pair<std::string, std::string>>;  // (key, id)

  // Adds a job to the indexes, or removes it.
  void Index(const JobEntry& entry) { SetIndexed(entry, true); }
  void Unindex(const JobEntry& entry) { SetIndexed(entry, false); }
  void SetIndexed(const JobEntry& entry, bool is_indexed);
  const v1::Job* FirstOf(const KeyedIds& index, const std::string& key) const;

  Jobs jobs_;
  std::set<std::string> ended_;
  Tickets queue_;
  Tickets queue_to_update_;
  std::set<std::string> with_ranks_;
  std::set<std::tuple<std::string, std::string, std::string>> requests_;  // (owner, request id, id)
  KeyedIds live_names_;
  KeyedIds live_folders_;  // by normalized path
};

}  // namespace tandem::controller
