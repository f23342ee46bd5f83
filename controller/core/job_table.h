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

// The message of a job that waits for reason BehindOthers.
inline constexpr char kBehindOthersMessage[] =
    "an earlier job waits for slots; jobs start in the order of their submission (`tandem get jobs --state "
    "QUEUED` lists them)";

// Jobs by id, with indexes for everything that decisions look up, so that no decision scans all jobs. Read it
// like a map. Add, Change, Remove and RemoveEnded keep the indexes up to date.
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

  // Calls change(JobEntry&), which must not change the id. Requires a job of that id.
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

  // queue(): the QUEUED jobs in the order of submission. queue_to_update(): the QUEUED jobs that do not yet
  // have reason BehindOthers and message kBehindOthersMessage.
  const Tickets& queue() const { return queue_; }
  const Tickets& queue_to_update() const { return queue_to_update_; }

  // The ids of the jobs that have ranks (HasRanks), sorted.
  const std::set<std::string>& with_ranks() const { return with_ranks_; }

  // Returns the job that the owner submitted with that request id; null if there is none, or if the request
  // id is empty.
  const v1::Job* FindRequest(const std::string& owner, const std::string& request_id) const;

  // Return the live job of that name, and the live job that saves its checkpoints in that folder; null if
  // there is none.
  const v1::Job* FindLiveByName(const std::string& name) const;
  const v1::Job* FindLiveByFolder(const std::string& directory) const;

 private:
  using KeyedIds = std::set<std::pair<std::string, std::string>>;  // (key, id)

  // Add a job to the indexes, and remove it from them.
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
