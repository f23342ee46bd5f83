// SPDX-License-Identifier: Apache-2.0
#include "controller/core/assignments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "controller/core/rendezvous.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AssignmentsTest, AssignmentsAreSelfContained) {
  Driver driver;
  driver.Connect("a", 1);
  driver.Connect("b", 1);
  driver.Feed(SubmitOf("job", 2));
  const v1::Assignments wanted = AssignmentsFor(driver.state, "b");
  ASSERT_EQ(wanted.all_size(), 1);
  const v1::Assignment& assignment = wanted.all(0);
  EXPECT_EQ(assignment.desired(), v1::DESIRED_RUN);
  EXPECT_EQ(assignment.slots_size(), 2);
  ASSERT_EQ(assignment.ranks_size(), 1);
  EXPECT_EQ(assignment.ranks(0).rank(), 1);
  EXPECT_EQ(assignment.resolved().resources().device(), v1::DEVICE_CPU);
  EXPECT_GT(assignment.groups_size(), 0);
  EXPECT_EQ(AssignmentsFor(driver.state, "c").all_size(), 0);
}

TEST(AssignmentsTest, EachRankIsInSixGroups) {
  Driver driver;
  driver.Connect("a", 2);
  driver.Connect("b", 2);
  Submit submit = SubmitOf("job", 4);
  submit.submitted.mutable_parallelism()->set_replicas(2);
  submit.resolved = jobspec::Resolve(submit.submitted);
  driver.Feed(submit);
  int ranks = 0;
  for (const char* worker : {"a", "b"}) {
    const v1::Assignment assignment = AssignmentsFor(driver.state, worker).all(0);
    for (const v1::RankStart& start : assignment.ranks()) {
      ++ranks;
      std::vector<std::string> names;
      for (const v1::GroupList& group : assignment.groups()) {
        if (std::count(group.ranks().begin(), group.ranks().end(), start.rank()) == 0) {
          continue;
        }
        names.push_back(group.name());
        if (group.has_clone_of()) {
          EXPECT_THAT(group.ranks(),
                      ::testing::ElementsAreArray(assignment.groups(group.clone_of()).ranks()));
        }
      }
      EXPECT_THAT(names, ElementsAre("dp_cp", "intra_dp_cp", "inter_dp_cp", "dp_cp_ag", "world", "report"));
    }
  }
  EXPECT_EQ(ranks, 4);
}

TEST(AssignmentsTest, StoredBadGridHasNoGroups) {
  Driver driver;
  driver.Connect("a", 2);
  Submit submit = SubmitOf("job", 2);
  submit.resolved.mutable_parallelism()->clear_replicas();  // as a version stored it that had no such field
  driver.Feed(submit);
  const v1::Assignments wanted = AssignmentsFor(driver.state, "a");
  ASSERT_EQ(wanted.all_size(), 1);
  EXPECT_EQ(wanted.all(0).desired(), v1::DESIRED_RUN);
  EXPECT_EQ(wanted.all(0).groups_size(), 0);
  ASSERT_EQ(wanted.all(0).ranks_size(), 2);
}

TEST(AssignmentsTest, AStoppingAttemptIsListedUntilItEnds) {
  Driver driver(v1::JOB_STATE_RUNNING);
  driver.Feed(Cancel{.job = "job", .reason = "CancelledByUser", .actor = "local"});
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all(0).desired(), v1::DESIRED_STOP_NOW);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").all(0).reason(), "CancelledByUser");
  driver.SayAll("a", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").forget_size(), 0) << "kept until the end of the job is durable";
  driver.SayAll("b", "id-job", v1::RANK_PHASE_EXITED);
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_CANCELLED);
  v1::Assignments wanted = AssignmentsFor(driver.state, "a");
  EXPECT_EQ(wanted.all_size(), 0);
  EXPECT_EQ(wanted.forget_size(), 1);
  MarkForgotten(wanted, "a", driver.state);
  EXPECT_EQ(AssignmentsFor(driver.state, "a").forget_size(), 0);
}

TEST(RendezvousTest, AGetIsAnsweredWithTheFirstValue) {
  Rendezvous rendezvous;
  v1::KvGet get;
  get.mutable_id()->set_job_id("j");
  get.set_key("k");
  v1::KvValue value;
  EXPECT_FALSE(*rendezvous.Get(get, "b", value));
  v1::KvSet set;
  set.mutable_id()->set_job_id("j");
  set.set_key("k");
  set.set_value("one");
  Rendezvous::Answer answer;
  EXPECT_TRUE(*rendezvous.Set(set, "a", answer));
  EXPECT_THAT(answer.workers, ElementsAre("b"));
  EXPECT_EQ(answer.value.value(), "one");
  set.set_value("two");
  EXPECT_FALSE(*rendezvous.Set(set, "a", answer));
  EXPECT_TRUE(*rendezvous.Get(get, "b", value));
  EXPECT_EQ(value.value(), "one");
  rendezvous.Retain(State());
  EXPECT_FALSE(*rendezvous.Get(get, "b", value)) << "the attempt is over";
}

TEST(RendezvousTest, ItEndsWhenEveryRankIsReady) {
  Driver driver;
  driver.Connect("a", 1);
  driver.Connect("b", 1);
  driver.Feed(SubmitOf("job", 2));
  driver.SayAll("a", "id-job", v1::RANK_PHASE_READY);
  v1::KvSet set;
  *set.mutable_id() = IdOf(CurrentAttempt(driver.Job()));
  set.set_key("k");
  v1::KvGet get;
  *get.mutable_id() = set.id();
  get.set_key("k");
  Rendezvous rendezvous;
  Rendezvous::Answer answer;
  v1::KvValue value;
  ASSERT_TRUE(rendezvous.Set(set, "a", answer).ok());
  rendezvous.Retain(driver.state);
  EXPECT_TRUE(*rendezvous.Get(get, "b", value));
  EXPECT_FALSE(AssignmentsFor(driver.state, "a").all(0).connected());
  driver.SayAll("b", "id-job", v1::RANK_PHASE_READY);
  ASSERT_EQ(driver.Job().state(), v1::JOB_STATE_RUNNING);
  rendezvous.Retain(driver.state);
  EXPECT_FALSE(*rendezvous.Get(get, "b", value));
  EXPECT_TRUE(AssignmentsFor(driver.state, "a").all(0).connected());
}

// Until there is no room for more; each is of 1 MiB.
class FilledRendezvousTest : public ::testing::Test {
 protected:
  absl::Status Wait(const std::string& worker, int number) {
    v1::KvGet get;
    get.mutable_id()->set_job_id("j");
    get.set_key(Key(number));
    v1::KvValue value;
    return rendezvous_.Get(get, worker, value).status();
  }
  absl::Status Set(const std::string& worker, int number) {
    v1::KvSet set;
    set.mutable_id()->set_job_id("j");
    set.set_key(Key(number));
    Rendezvous::Answer answer;
    return rendezvous_.Set(set, worker, answer).status();
  }
  // How many keys from `first` on worker w may wait for, or set.
  int NumWaited(int first) {
    return NumTaken(first, [this](int number) { return Wait("w", number); });
  }
  int NumSet(int first) {
    return NumTaken(first, [this](int number) { return Set("w", number); });
  }

  Rendezvous rendezvous_;

 private:
  static std::string Key(int number) { return std::string(1 << 20, 'k') + std::to_string(number); }

  static int NumTaken(int first, const std::function<absl::Status(int)>& take) {
    for (int number = first; number < first + 100; ++number) {
      const absl::Status status = take(number);
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
        EXPECT_THAT(status.message(),
                    HasSubstr("worker w has set and waits for more in the rendezvous of job j (attempt 0) "
                              "than its ranks can need; allowed are 64 MiB"));
        return number - first;
      }
    }
    return -1;
  }
};

TEST_F(FilledRendezvousTest, WaitingKeysAreBoundedForEachWorker) {
  EXPECT_EQ(NumWaited(0), 63);
  EXPECT_TRUE(Wait("w", 0).ok()) << "it waits for that already";
  EXPECT_TRUE(Wait("other", 63).ok());
  EXPECT_TRUE(Set("other", 0).ok());
  EXPECT_TRUE(Wait("w", 64).ok()) << "the answer has made room";
  EXPECT_EQ(NumWaited(100), 0);
  rendezvous_.Forget("w");
  EXPECT_EQ(NumWaited(100), 63);
}

TEST_F(FilledRendezvousTest, AWorkerSetsSoManyValues) {
  EXPECT_EQ(NumSet(0), 63);
  EXPECT_TRUE(Set("w", 0).ok()) << "its worker has said it again";
  rendezvous_.Forget("w");
  EXPECT_EQ(NumSet(100), 0) << "values stay";
  EXPECT_EQ(NumWaited(200), 0);
}

}  // namespace
}  // namespace tandem::controller
