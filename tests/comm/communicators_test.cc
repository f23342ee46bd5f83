// SPDX-License-Identifier: Apache-2.0
#include "comm/communicators.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/device.h"
#include "parallel/group_options.h"
#include "tests/comm/collectives.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/comm/thread_communicator.h"
#include "tests/comm/thread_groups.h"
#include "tests/device/tensors.h"

namespace tandem::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Of `rank` among `size` ranks: a group over all, its clone, and one of neighbours.
std::vector<Membership> Groups(int rank, int size) {
  return {
      {.group = "dp_cp", .prefix = "group/0/", .rank = rank, .size = size},
      {.group = "dp_cp_ag", .prefix = "group/1/", .rank = rank, .size = size, .clone_of = "dp_cp"},
      {.group = "ep", .prefix = "group/" + std::to_string(2 + rank / 2) + "/", .rank = rank % 2, .size = 2}};
}

const std::vector<CommunicatorUse> kUses = {{.group = "dp_cp", .purpose = "reduce"},
                                            {.group = "dp_cp_ag", .purpose = "gather", .window = true},
                                            {.group = "ep", .purpose = "dispatch"},
                                            {.group = "ep", .purpose = "sizes"}};

int64_t SumOfGather(Communicator& comm, int64_t value) {
  const at::Tensor mine = at::full({1}, value, at::kLong);
  at::Tensor all = at::empty({comm.size()}, at::kLong);
  comm.AllGather(device::MemoryOf(mine), device::MemoryOf(all));
  return all.sum().item<int64_t>();
}

TEST(CommunicatorsTest, EachUseHasItsOwnCommunicator) {
  ThreadGroups groups;
  RunThreadRanks(4, [&](int rank) {
    const auto factory = groups.MakeFactory();
    Communicators communicators(*factory, Groups(rank, 4), kUses);
    ASSERT_EQ(communicators.size(), 4u);
    EXPECT_NE(&communicators[2], &communicators[3]);
    EXPECT_EQ(communicators[3].name(), "ep");
    EXPECT_EQ(SumOfGather(communicators[0], rank), 6);
    EXPECT_EQ(SumOfGather(communicators[3], rank), rank < 2 ? 1 : 5);
    EXPECT_EQ(SumOfGather(communicators[1], 1), 4);
    EXPECT_EQ(communicators[2].num_collectives(), 0u);
  });
}

// Which communicators are cloned from which live ones.
class RecordingFactory final : public CommunicatorFactory {
 public:
  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator* live) override {
    options[membership.prefix] = membership.options;
    ctas[membership.prefix] = membership.ctas;
    made.push_back(membership.prefix + (live == nullptr ? "" : " from " + live->name()));
    return std::move(MakeThreadCommunicators(membership.group, 1).front());
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }

  std::vector<std::string> made;
  std::map<std::string, parallel::GroupOptions> options;  // by prefix
  std::map<std::string, int> ctas;                        // likewise
};

TEST(CommunicatorsTest, UsesAndClonesHaveTheGroupsOptions) {
  std::vector<Membership> groups = Groups(0, 1);
  groups[1].options = {.high_priority = true};
  groups[2].options = {.max_ctas = 4};
  RecordingFactory factory;
  const Communicators communicators(factory, groups, kUses);
  EXPECT_EQ(factory.options.at("group/0/"), parallel::GroupOptions());
  EXPECT_EQ(factory.options.at("group/1/"), (parallel::GroupOptions{.high_priority = true}));
  EXPECT_EQ(factory.options.at("group/2/"), (parallel::GroupOptions{.max_ctas = 4}));
  EXPECT_EQ(factory.options.at("group/2/sizes/"), (parallel::GroupOptions{.max_ctas = 4}));
  EXPECT_EQ(factory.ctas.at("group/0/"), parallel::BoundOfCtas({}, "reduce"));
  EXPECT_EQ(factory.ctas.at("group/2/sizes/"), 4) << "what the job says, whatever it is for";
}

TEST(CommunicatorsTest, ClonesComeFromALiveCommunicator) {
  RecordingFactory factory;
  const Communicators communicators(factory, Groups(0, 1), kUses);
  EXPECT_THAT(factory.made,
              ElementsAre("group/0/", "group/2/", "group/2/sizes/ from ep", "group/1/ from dp_cp"));
  // Programs list gathers first.
  RecordingFactory reversed;
  const Communicators others(reversed, Groups(0, 1), {kUses[1], kUses[3], kUses[0]});
  EXPECT_THAT(reversed.made, ElementsAre("group/2/", "group/0/", "group/1/ from dp_cp"));
  EXPECT_EQ(others[0].name(), "dp_cp_ag");
  EXPECT_EQ(others[2].name(), "dp_cp");
  RecordingFactory alone;
  const Communicators gather(alone, Groups(0, 1), {{.group = "dp_cp_ag", .purpose = "gather"}});
  EXPECT_THAT(alone.made, ElementsAre("group/1/")) << "no use has the group that it is a clone of";
}

TEST(CommunicatorsTest, UnknownGroupsAndUsesListedTwiceAreRefused) {
  RecordingFactory factory;
  const auto message = [&](const std::vector<CommunicatorUse>& uses) {
    try {
      Communicators(factory, Groups(0, 1), uses);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({{.group = "pp", .purpose = "send"}}),
            "communicator pp send: this rank is in no such group");
  EXPECT_EQ(message({kUses[0], kUses[0]}), "communicator dp_cp reduce is listed twice");
}

// Its third group cannot be made. Counts the aborts of the others.
class FailingFactory final : public CommunicatorFactory {
 public:
  class Counted final : public ForwardingCommunicator {
   public:
    Counted(std::unique_ptr<Communicator> inner, int& aborts)
        : ForwardingCommunicator(std::move(inner)), aborts_(aborts) {}
    void Abort() override { ++aborts_; }

   private:
    int& aborts_;
  };

  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator*) override {
    if (++calls_ == 3) {
      throw CommError("a peer did not come");
    }
    return std::make_unique<Counted>(std::move(MakeThreadCommunicators(membership.group, 1).front()), aborts);
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }

  int aborts = 0;

 private:
  int calls_ = 0;
};

TEST(CommunicatorsTest, AGroupThatFailsAbortsTheOthers) {
  FailingFactory factory;
  EXPECT_THROW(Communicators(factory, Groups(0, 1), kUses), CommError);
  EXPECT_EQ(factory.aborts, 2);
}

// Refuses windows, as a GPU without peer access would.
class WithoutWindows final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  absl::Status RegisterWindow(std::shared_ptr<const device::Region>) override {
    return absl::FailedPreconditionError("no peer access");
  }
};

class FactoryWithoutWindows final : public CommunicatorFactory {
 public:
  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator*) override {
    return std::make_unique<WithoutWindows>(std::move(MakeThreadCommunicators(membership.group, 1).front()));
  }
  std::unique_ptr<device::Region> Reserve(device::Device& device, int64_t bytes) override {
    return device.Reserve(bytes);
  }
};

TEST(CommunicatorsTest, OnlyWindowUsesRegister) {
  const std::shared_ptr<device::Region> region = device::MakeCpuDevice()->Reserve(8);
  FactoryWithoutWindows factory;
  Communicators communicators(factory, Groups(0, 1), kUses);
  EXPECT_THAT(communicators.RegisterWindows(region),
              ElementsAre("communicator dp_cp_ag gather: no peer access"));
  RecordingFactory host;
  Communicators on_host(host, Groups(0, 1), kUses);
  EXPECT_THAT(on_host.RegisterWindows(region), ElementsAre());
}

TEST(CommunicatorsTest, AbortEndsTheCollectivesOfAll) {
  ThreadGroups groups;
  RunThreadRanks(2, [&](int rank) {
    const auto factory = groups.MakeFactory();
    Communicators communicators(*factory, Groups(rank, 2), kUses);
    if (rank == 0) {
      communicators.Abort();
      return;
    }
    for (Communicator* each : communicators.all()) {
      EXPECT_THROW(SumOfGather(*each, 1), CommError);
    }
  });
}

TEST(CommunicatorsTest, GlooJoinsByRendezvous) {
  const auto store = std::make_shared<MemoryStore>();
  RunThreadRanks(2, [&](int rank) {
    const auto factory =
        MakeGlooFactory({.store = store, .data_address = "127.0.0.1", .timeout = absl::Seconds(30)});
    Communicators communicators(*factory, Groups(rank, 2), kUses);
    for (Communicator* each : communicators.all()) {
      EXPECT_EQ(SumOfGather(*each, rank + 1), 3);
    }
    EXPECT_THROW(communicators[0].AllGather(device::MemoryOf(at::zeros({2})),
                                            device::MemoryOf(*std::make_unique<at::Tensor>(at::zeros({3})))),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace tandem::comm
