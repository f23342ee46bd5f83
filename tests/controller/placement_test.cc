// SPDX-License-Identifier: Apache-2.0
#include "controller/core/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core/assignments.h"
#include "controller/core/decide.h"
#include "proto/names.h"
#include "tests/controller/job_builder.h"

namespace tandem::controller {
namespace {

using ::testing::ElementsAre;

TEST(PlacementTest, RanksGoOverWorkersInNameOrder) {
  Driver driver;
  driver.Connect("b", 2);
  driver.Connect("a", 2);
  driver.Feed(SubmitOf("job", 3));
  std::vector<std::string> where;
  for (const v1::RankSlot& slot : Current(driver.Job()).slots()) {
    where.push_back(slot.worker() + std::to_string(slot.slot()));
  }
  EXPECT_THAT(where, ElementsAre("a0", "a1", "b0"));
  EXPECT_EQ(Current(driver.Job()).device(), v1::DEVICE_CPU) << "auto is fixed when the job is admitted";
  EXPECT_EQ(Describe(driver.state, "b").slots_in_use(), 1);
}

v1::Hello HelloFrom(const std::string& worker, const std::string& host, const std::string& data_address,
                    int slots = 1) {
  v1::Hello hello = HelloOf(worker, slots);
  hello.mutable_inventory()->set_hostname(host);
  hello.mutable_inventory()->set_data_address(data_address);
  return hello;
}

TEST(PlacementTest, RanksNeedWorkersThatReachEachOther) {
  for (const char* const loopback : {"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "localhost"}) {
    Driver driver;
    driver.Connect(HelloFrom("a", "one", loopback));
    driver.Connect(HelloFrom("b", "two", "10.0.0.7"));
    driver.Feed(SubmitOf("job", 2));
    EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_QUEUED) << loopback;
    EXPECT_EQ(driver.Job().reason(), "WorkersApart") << loopback;
    EXPECT_EQ(driver.Job().message(),
              std::string("needs 2 slots on workers whose ranks reach each other, and a (") + loopback +
                  ") and b (10.0.0.7) do not: a loopback address is reached on its own machine only; start "
                  "each tandem-worker with the --controller or --data-address at which the others reach it");
    driver.Connect(HelloFrom("a", "one", "10.0.0.6"));
    EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED) << "the worker was started again as it says";
  }
}

TEST(PlacementTest, LoopbacksOfTwoMachinesAreNotMixed) {
  Driver driver;
  driver.Connect(HelloFrom("a", "one", "127.0.0.1"));
  driver.Connect(HelloFrom("b", "two", "127.0.0.1"));
  driver.Feed(SubmitOf("job", 2));
  EXPECT_EQ(driver.Job().reason(), "WorkersApart");
  driver.Connect(HelloFrom("c", "two", "127.0.0.1"));
  ASSERT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  EXPECT_THAT(WorkersOf(driver.Job()), ElementsAre("b", "c"));
}

TEST(PlacementTest, UnreachableWorkersArePassedOver) {
  Driver driver;
  driver.Connect(HelloFrom("a", "one", "127.0.0.1"));
  driver.Connect(HelloFrom("b", "two", "10.0.0.7"));
  driver.Connect(HelloFrom("c", "three", "node3.example"));
  driver.Feed(SubmitOf("job", 2));
  ASSERT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  EXPECT_THAT(WorkersOf(driver.Job()), ElementsAre("b", "c"));
  driver.Feed(SubmitOf("alone", 1));
  EXPECT_THAT(WorkersOf(driver.Job("id-alone")), ElementsAre("a")) << "one worker needs no other";
  driver.Feed(SubmitOf("third", 1));
  EXPECT_EQ(driver.Job("id-third").reason(), "WaitingForSlots");
}

v1::Hello HelloOfBuild(const std::string& worker, const std::string& build, int slots = 1) {
  v1::Hello hello = HelloOf(worker, slots);
  hello.set_build(build);
  return hello;
}

TEST(PlacementTest, RanksNeedWorkersOfOneBuild) {
  Driver driver;
  driver.Connect(HelloOfBuild("a", "0.1.0+0123456789ab"));
  driver.Connect(HelloOfBuild("b", "0.1.0+ba9876543210"));
  driver.Feed(SubmitOf("job", 2));
  EXPECT_EQ(driver.StateAndReason(), "QUEUED MixedBuilds");
  EXPECT_EQ(
      driver.Job().message(),
      "needs 2 slots on workers of one build, and a (0.1.0+0123456789ab) and b (0.1.0+ba9876543210) are "
      "of two, which may compute other numbers; run the same build on every worker");
  driver.Connect(HelloOfBuild("a", "0.1.0+ba9876543210"));
  EXPECT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED) << "the worker was replaced as it says";
}

TEST(PlacementTest, WorkersOfAnotherBuildArePassedOver) {
  Driver driver;
  driver.Connect(HelloOfBuild("a", "new"));
  driver.Connect(HelloOfBuild("b", "old"));
  driver.Connect(HelloOfBuild("c", "new"));
  driver.Feed(SubmitOf("job", 2));
  ASSERT_EQ(driver.Job().state(), v1::JOB_STATE_ADMITTED);
  EXPECT_THAT(WorkersOf(driver.Job()), ElementsAre("a", "c"));
  driver.Feed(SubmitOf("alone", 1));
  EXPECT_THAT(WorkersOf(driver.Job("id-alone")), ElementsAre("b")) << "one worker needs no other";
}

TEST(PlacementTest, ApartIsSaidBeforeBuilds) {
  Driver driver;
  v1::Hello loopback = HelloFrom("a", "one", "127.0.0.1");
  loopback.set_build("old");
  driver.Connect(loopback);
  driver.Connect(HelloFrom("b", "two", "10.0.0.7"));
  driver.Feed(SubmitOf("job", 2));
  EXPECT_EQ(driver.Job().reason(), "WorkersApart") << "whatever their builds are";
}

// Workers with two GPUs and a CPU slot each.
v1::Hello HelloWithGpus(const std::string& worker) {
  v1::Hello hello = HelloOf(worker, 3);
  for (int i = 0; i < 2; ++i) {
    hello.mutable_inventory()->mutable_slots(i)->set_device(v1::DEVICE_CUDA);
  }
  return hello;
}

TEST(PlacementTest, AutoIsCudaIfFreeGpusSuffice) {
  Driver driver;
  driver.Connect(HelloWithGpus("a"));
  driver.Connect(HelloWithGpus("b"));
  driver.Feed(SubmitOf("job", 3));
  EXPECT_EQ(Current(driver.Job()).device(), v1::DEVICE_CUDA);
  EXPECT_EQ(Current(driver.Job()).slots(2).worker(), "b");
  EXPECT_EQ(Current(driver.Job()).slots(2).slot(), 0);
  EXPECT_EQ(AssignmentsFor(driver.state, "b").all(0).resolved().resources().device(), v1::DEVICE_CUDA);
  EXPECT_EQ(driver.Job().message(), "3 ranks on a, b, device cuda");
  EXPECT_EQ(driver.Job().resolved().resources().device(), v1::DEVICE_AUTO) << "as submitted";

  driver.Feed(SubmitOf("second", 2));
  EXPECT_EQ(Current(driver.Job("id-second")).device(), v1::DEVICE_CPU) << "one GPU is free, two are needed";
  driver.Feed(SubmitOf("third", 2));
  EXPECT_EQ(driver.Job("id-third").message(),
            "needs 2 slots, 1 free of 4 on 2 workers with cuda and 0 free of 2 on 2 workers with cpu");
}

TEST(PlacementTest, AutoIsCudaForExpertsToo) {
  Driver driver;
  driver.Connect(HelloWithGpus("a"));
  Submit submit = SubmitOf("job", 1);
  submit.resolved.mutable_model()->mutable_moe()->set_num_experts(4);
  driver.Feed(submit);
  EXPECT_EQ(Current(driver.Job()).device(), v1::DEVICE_CUDA);
}

// Two workers of one machine, which offer the same two GPUs.
void ConnectTwoOfOneMachine(Driver& driver) {
  for (const char* worker : {"a", "b"}) {
    v1::Hello hello = HelloWithGpus(worker);
    for (int i = 0; i < 2; ++i) {
      hello.mutable_inventory()->mutable_slots(i)->set_uuid(i == 0 ? "GPU-0" : "GPU-1");
    }
    driver.Connect(hello);
  }
}

Submit SubmitOnGpus(const std::string& name, int ranks) {
  Submit submit = SubmitOf(name, ranks);
  submit.resolved.mutable_resources()->set_device(v1::DEVICE_CUDA);
  return submit;
}

TEST(PlacementTest, AGpuThatTwoWorkersOfferCountsOnce) {
  Driver driver;
  ConnectTwoOfOneMachine(driver);
  driver.Feed(SubmitOnGpus("job", 3));
  EXPECT_EQ(driver.Job().message(), "needs 3 slots, 2 free of 2 on 2 workers with cuda");
}

TEST(PlacementTest, GpuOfTwoWorkersTakesOneRank) {
  Driver driver;
  ConnectTwoOfOneMachine(driver);
  Submit submit = SubmitOnGpus("job", 2);
  submit.resolved.mutable_resources()->set_ranks_per_worker(1);
  driver.Feed(submit);
  ASSERT_THAT(WorkersOf(driver.Job()), ElementsAre("a", "b"));
  EXPECT_NE(Current(driver.Job()).slots(0).slot(), Current(driver.Job()).slots(1).slot());
  driver.Feed(SubmitOf("late", 1));
  EXPECT_EQ(Current(driver.Job("id-late")).device(), v1::DEVICE_CPU) << "both GPUs are held";
}

TEST(PlacementTest, WhatIsAskedForIsNotChanged) {
  for (const v1::Device device : {v1::DEVICE_CPU, v1::DEVICE_CUDA}) {
    Driver driver;
    driver.Connect(HelloWithGpus("a"));
    Submit submit = SubmitOf("job", 1);
    submit.resolved.mutable_resources()->set_device(device);
    driver.Feed(submit);
    EXPECT_EQ(Current(driver.Job()).device(), device);
    EXPECT_EQ(Current(driver.Job()).slots(0).slot(), device == v1::DEVICE_CPU ? 2 : 0);
  }
  Driver driver;
  driver.Connect("a", 2);
  Submit submit = SubmitOf("job", 1);
  submit.resolved.mutable_resources()->set_device(v1::DEVICE_CUDA);
  driver.Feed(submit);
  EXPECT_EQ(driver.Job().message(), "needs 1 slot, 0 free of 0 on 0 workers with cuda");
}

TEST(PlacementTest, DeviceStaysThatOfTheFirstAttempt) {
  Driver driver;
  driver.Connect("a", 1);
  driver.Feed(SubmitOf("job", 1));
  EXPECT_EQ(Current(driver.Job()).device(), v1::DEVICE_CPU);
  v1::Job again = driver.Job();
  again.set_state(v1::JOB_STATE_QUEUED);
  driver.state.jobs = {};
  driver.Connect(HelloWithGpus("b"));
  EXPECT_EQ(Place(driver.state, again).device, v1::DEVICE_CPU);
  EXPECT_EQ(Place(driver.state, again).slots.at(0).worker(), "a");
}

TEST(PlacementTest, UnhealthySlotsTakeNoRanks) {
  Driver driver;
  v1::Hello hello = HelloOf("a", 2);
  hello.mutable_inventory()->mutable_slots(0)->set_healthy(false);
  driver.Connect(hello);
  driver.Feed(SubmitOf("job", 2));
  EXPECT_EQ(driver.Job().message(), "needs 2 slots, 1 free of 2 on 1 worker");
}

TEST(PlacementTest, RanksPerWorkerSpreadsAJob) {
  Driver driver;
  driver.Connect("a", 2);
  Submit submit = SubmitOf("job", 2);
  submit.resolved.mutable_resources()->set_ranks_per_worker(1);
  driver.Feed(submit);
  EXPECT_EQ(driver.Job().message(),
            "needs 2 slots, 2 free of 2 on 1 worker; resources.ranks_per_worker allows 1 on each");
  driver.Connect("b", 2);
  EXPECT_THAT(WorkersOf(driver.Job()), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace tandem::controller
