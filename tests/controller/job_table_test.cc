// SPDX-License-Identifier: Apache-2.0
#include "controller/core/job_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/reasons.h"

namespace tandem::controller {
namespace {

JobEntry EntryOf(const std::string& id, v1::JobState state) {
  JobEntry entry;
  entry.job.set_id(id);
  entry.job.set_name("name-" + id);
  entry.job.set_owner("ada");
  entry.job.set_request_id("request-" + id);
  entry.job.mutable_resolved()->mutable_checkpoint()->set_directory("/runs/" + id);
  entry.job.set_state(state);
  return entry;
}

std::string IdOf(const v1::Job* job) { return job == nullptr ? "" : job->id(); }

TEST(JobTableTest, JobIsFoundByRequestNameAndFolder) {
  JobTable table;
  table.Add(EntryOf("a", v1::JOB_STATE_RUNNING));
  EXPECT_EQ(IdOf(table.FindRequest("ada", "request-a")), "a");
  EXPECT_EQ(IdOf(table.FindRequest("bob", "request-a")), "") << "request ids are an owner's";
  EXPECT_EQ(IdOf(table.FindRequest("ada", "")), "");
  EXPECT_EQ(IdOf(table.FindLiveByName("name-a")), "a");
  EXPECT_EQ(IdOf(table.FindLiveByName("name-")), "") << "not by the beginning of one";
  for (const char* spelling : {"/runs/a", "/runs/a/", "/runs//a", "/runs/b/../a/."}) {
    EXPECT_EQ(IdOf(table.FindLiveByFolder(spelling)), "a") << spelling;
  }
  EXPECT_EQ(IdOf(table.FindLiveByFolder("/runs")), "");
  EXPECT_EQ(IdOf(table.FindLiveByFolder("")), "");
}

constexpr int kNumIds = 20;  // jobs are "0" to "19"

// What the table says at once, against a look at every job.
void CheckAgainstEveryJob(const JobTable& table) {
  JobTable::Tickets queue;
  JobTable::Tickets to_update;
  std::set<std::string> with_ranks;
  size_t live = 0;
  for (const auto& [id, entry] : table) {
    const v1::Job& job = entry.job;
    const bool is_live = !IsTerminal(job.state());
    live += is_live ? 1 : 0;
    if (HasRanks(job.state())) {
      with_ranks.insert(id);
    }
    if (job.state() == v1::JOB_STATE_QUEUED) {
      queue.insert({entry.runtime.submitted_seq(), id});
      if (job.reason() != proto::ReasonCode("BehindOthers") || job.message() != kBehindOthersMessage) {
        to_update.insert({entry.runtime.submitted_seq(), id});
      }
    }
    EXPECT_EQ(IdOf(table.FindRequest("ada", job.request_id())), id);
    EXPECT_EQ(IdOf(table.FindLiveByName(job.name())), is_live ? id : "");
    EXPECT_EQ(IdOf(table.FindLiveByFolder(job.resolved().checkpoint().directory())), is_live ? id : "");
  }
  for (int i = 0; i < kNumIds; ++i) {
    const std::string id = std::to_string(i);
    if (!table.contains(id)) {
      EXPECT_EQ(IdOf(table.FindRequest("ada", "request-" + id)), "") << "a removed job's request is free";
    }
  }
  EXPECT_EQ(table.queue(), queue);
  EXPECT_EQ(table.queue_to_update(), to_update);
  EXPECT_EQ(table.with_ranks(), with_ranks);
  EXPECT_EQ(table.num_live(), live);
}

TEST(JobTableTest, MatchesAScanAfterAnyChanges) {
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const std::vector<v1::JobState> states = {
      v1::JOB_STATE_QUEUED,   v1::JOB_STATE_ADMITTED,  v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
      v1::JOB_STATE_STOPPING, v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,   v1::JOB_STATE_CANCELLED};
  JobTable table;
  for (int i = 0; i < 3000; ++i) {
    const std::string id = std::to_string(random() % kNumIds);
    const v1::JobState state = states[random() % states.size()];
    if (!table.contains(id)) {
      JobEntry entry = EntryOf(id, state);
      entry.runtime.set_submitted_seq(i);
      table.Add(std::move(entry));
    } else if (random() % 10 == 0) {
      table.Remove(id);
    } else if (random() % 50 == 0) {
      table.RemoveEnded();
      EXPECT_TRUE(std::none_of(table.begin(), table.end(),
                               [](const auto& each) { return IsTerminal(each.second.job.state()); }));
    } else {
      table.Change(id, [&](JobEntry& entry) {
        entry.job.set_state(state);
        entry.job.set_reason(random() % 2 == 0 ? proto::ReasonCode("BehindOthers") : "NotEnoughSlots");
        entry.job.set_message(random() % 2 == 0 ? kBehindOthersMessage : "");
      });
    }
    CheckAgainstEveryJob(table);
  }
}

}  // namespace
}  // namespace tandem::controller
