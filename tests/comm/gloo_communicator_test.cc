// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "comm/communicator_factory.h"
#include "platform/clock.h"
#include "tests/comm/collectives.h"
#include "tests/comm/memory_store.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/device/tensors.h"

extern char** environ;

namespace tandem::comm {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using Seconds = std::chrono::duration<double>;

constexpr absl::Duration kTimeout = absl::Seconds(30);

// Gloo writes to peers that are gone: as a trainer, this program and the ranks that it starts ignore SIGPIPE.
class IgnoresSigpipe : public testing::Environment {
 public:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
};
const testing::Environment* const ignores_sigpipe = testing::AddGlobalTestEnvironment(new IgnoresSigpipe);

std::unique_ptr<Communicator> MakeGlooCommunicator(const std::string& name, std::shared_ptr<Store> store,
                                                   const std::string& prefix, int rank, int size,
                                                   const std::string& data_address, absl::Duration timeout,
                                                   const std::vector<int>& ranks = {}) {
  return MakeGlooFactory({.store = std::move(store), .data_address = data_address, .timeout = timeout})
      ->Make({.group = name, .prefix = prefix, .rank = rank, .size = size, .ranks = ranks}, nullptr);
}

void ExpectAllToAllFails(Communicator& comm, const std::string& message) {
  at::Tensor output = at::zeros({2});
  EXPECT_THAT([&] { comm.AllToAll(device::MemoryOf(at::zeros({2})), device::MemoryOf(output)); },
              testing::ThrowsMessage<CommError>(HasSubstr(message)));
}

// All ranks of a group, connected: a rank that leaves while another still connects would fail that one's
// creation.
std::vector<std::unique_ptr<Communicator>> MakeGlooCommunicators(const std::string& name, int size,
                                                                 absl::Duration timeout,
                                                                 const std::shared_ptr<Store>& store,
                                                                 const std::string& prefix = "p",
                                                                 const std::vector<int>& ranks = {}) {
  std::vector<std::unique_ptr<Communicator>> communicators(static_cast<size_t>(size));
  RunThreadRanks(size, [&](int rank) {
    communicators[rank] = MakeGlooCommunicator(name, store, prefix, rank, size, "127.0.0.1", timeout, ranks);
  });
  return communicators;
}

// A rendezvous through a folder, for ranks that are processes.
class FolderStore final : public Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}

  void Set(const std::string& key, const std::string& value) override {
    const std::string path = PathOf(key);
    std::ofstream(path + ".part", std::ios::binary) << value;
    std::filesystem::rename(path + ".part", path);
  }
  std::string Get(const std::string& key, absl::Duration patience) override {
    const absl::Time deadline = platform::SteadyClock().Now() + patience;
    while (!std::filesystem::exists(PathOf(key))) {
      if (platform::SteadyClock().Now() > deadline) {
        throw CommError("nobody has set " + key);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream stream(PathOf(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  std::string PathOf(std::string key) const {
    for (char& c : key) {
      c = c == '/' ? '_' : c;
    }
    return folder_ + "/" + key;
  }

  const std::string folder_;
};

// Remembers which keys were asked for.
class RecordingStore final : public Store {
 public:
  void Set(const std::string& key, const std::string& value) override {
    store_.Set(key, value);
    const std::lock_guard lock(mu_);
    keys.insert(key);
  }
  std::string Get(const std::string& key, absl::Duration patience) override {
    return store_.Get(key, patience);
  }

  std::set<std::string> keys;

 private:
  MemoryStore store_;
  std::mutex mu_;
};

TEST(GlooCommunicatorTest, CollectivesMoveTheRightBytesBetweenThreads) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(ranks);
    const auto store = std::make_shared<MemoryStore>();
    RunThreadRanks(ranks, [&](int rank) {
      const auto comm = MakeGlooCommunicator("dp_cp", store, "1/dp_cp", rank, ranks, "127.0.0.1", kTimeout);
      EXPECT_EQ(comm->name(), "dp_cp");
      EXPECT_EQ(comm->rank(), rank);
      EXPECT_EQ(comm->size(), ranks);
      ExpectCollectivesMoveTheRightBytes(*comm);
      if (ranks == 2) {
        ExpectTransfersArrive(*comm);
      }
    });
  }
}

TEST(GlooCommunicatorTest, GroupsBesideEachOtherDoNotMix) {
  const auto store = std::make_shared<MemoryStore>();
  RunThreadRanks(2, [&](int rank) {
    const auto gather = MakeGlooCommunicator("gather", store, "a", rank, 2, "127.0.0.1", kTimeout);
    const auto reduce = MakeGlooCommunicator("reduce", store, "b", rank, 2, "localhost", kTimeout);
    // Different orders on different ranks, from different threads.
    std::thread other([&] {
      for (int i = 0; i < 200; ++i) {
        at::Tensor output = at::zeros({2}, at::kLong);
        reduce->AllGather(device::MemoryOf(at::full({1}, 100 * i + rank, at::kLong)),
                          device::MemoryOf(output));
        ASSERT_EQ(output[1 - rank].item<int64_t>(), 100 * i + 1 - rank);
      }
    });
    for (int i = 0; i < 200; ++i) {
      at::Tensor output = at::zeros({2}, at::kLong);
      gather->AllGather(device::MemoryOf(at::full({1}, -i - rank, at::kLong)), device::MemoryOf(output));
      ASSERT_EQ(output[1 - rank].item<int64_t>(), -i - 1 + rank);
    }
    other.join();
  });
}

TEST(GlooCommunicatorTest, RendezvousUsesOnlyKeysUnderThePrefix) {
  const auto store = std::make_shared<RecordingStore>();
  MakeGlooCommunicators("g", 2, kTimeout, store, "job/1/g");
  EXPECT_FALSE(store->keys.empty());
  for (const std::string& key : store->keys) {
    EXPECT_EQ(key.rfind("job/1/g/", 0), 0u) << key;
  }
}

TEST(GlooCommunicatorTest, OneRankNeedsNeitherStoreNorNetwork) {
  const auto comm = MakeGlooCommunicator("g", nullptr, "", 0, 1, "no such host", kTimeout);
  ExpectCollectivesMoveTheRightBytes(*comm);
}

TEST(GlooCommunicatorTest, AbsentPeerIsNamedByItsKey) {
  const auto store = std::make_shared<MemoryStore>();
  try {
    MakeGlooCommunicator("dp_cp", store, "p", 0, 2, "127.0.0.1", absl::Milliseconds(200));
    FAIL() << "created";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("group dp_cp rank 0, one of 2, creation on 127.0.0.1: "));
  }
}

TEST(GlooCommunicatorTest, ForeignAddressIsRefused) {
  const auto store = std::make_shared<MemoryStore>();
  try {
    MakeGlooCommunicator("g", store, "p", 0, 2, "host.invalid", kTimeout);
    FAIL() << "created";
  } catch (const AddressError& error) {  // and no peer's
    EXPECT_THAT(error.what(), HasSubstr("group g rank 0, one of 2, creation on host.invalid: "));
    EXPECT_THAT(error.what(), Not(AnyOf(HasSubstr("\n"), HasSubstr("frame #"))));
  }
}

TEST(GlooCommunicatorTest, APeerThatLeavesIsNamedAndFelt) {
  auto communicators = MakeGlooCommunicators("dp_cp", 2, kTimeout, std::make_shared<MemoryStore>());
  RunThreadRanks(2, [&](int rank) {
    const auto comm = std::move(communicators[rank]);
    if (rank == 1) {
      return;
    }
    at::Tensor output = at::zeros({2});
    const auto begin = std::chrono::steady_clock::now();
    try {
      comm->AllGather(device::MemoryOf(at::zeros({1})), device::MemoryOf(output));
      ADD_FAILURE() << "returned";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("group dp_cp rank 0 AllGather: rank 1 closed the connection"));
    }
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 10);
    EXPECT_THROW(comm->AllGather(device::MemoryOf(at::zeros({1})), device::MemoryOf(output)), CommError);
  });
}

TEST(GlooCommunicatorTest, IdlePeerIsNamedAtTheDeadline) {
  // The time is that of the connections too: where the machine stood still for as long, they are made again.
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int tries = 1; communicators.empty(); ++tries) {
    try {
      communicators =
          MakeGlooCommunicators("dp_cp", 2, absl::Milliseconds(1500), std::make_shared<MemoryStore>());
    } catch (const CommError& error) {
      ASSERT_LT(tries, 10) << error.what();
    }
  }
  std::latch done(1);
  RunThreadRanks(2, [&](int rank) {
    if (rank == 1) {
      done.wait();
      return;
    }
    ExpectAllToAllFails(*communicators[rank],
                        "group dp_cp rank 0 AllToAll: rank 1 did not take part within 1.5s");
    done.count_down();
  });
}

// A user looks for the rank of the job; a group of experts may consist of any of them.
TEST(GlooCommunicatorTest, ErrorsNameTheRanksOfTheJob) {
  auto communicators = MakeGlooCommunicators("ep", 2, kTimeout, std::make_shared<MemoryStore>(), "p", {4, 7});
  RunThreadRanks(2, [&](int rank) {
    const auto comm = std::move(communicators[rank]);
    if (rank == 0) {
      return;
    }
    ExpectAllToAllFails(*comm, "group ep rank 7 AllToAll: rank 4 closed the connection");
  });
}

TEST(GlooCommunicatorTest, NoCallStartsAfterAbort) {
  for (const auto& comm : MakeGlooCommunicators("dp_cp", 2, kTimeout, std::make_shared<MemoryStore>())) {
    comm->Abort();
    at::Tensor output = at::zeros({2});
    EXPECT_THROW(comm->AllGather(device::MemoryOf(at::zeros({1})), device::MemoryOf(output)), CommError);
    EXPECT_EQ(comm->num_collectives(), 0u);
  }
}

// Ranks as processes: this binary again, running one of the tests below as a rank.
class RankProcesses {
 public:
  RankProcesses(const std::string& test, int ranks) {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem-comm-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::string> arguments = {"/proc/self/exe",
                                            "--gtest_also_run_disabled_tests",
                                            "--gtest_brief=1",
                                            "--gtest_filter=RankProcess.DISABLED_" + test,
                                            folder_,
                                            std::to_string(rank),
                                            std::to_string(ranks)};
      std::vector<char*> argv;
      for (std::string& argument : arguments) {
        argv.push_back(argument.data());
      }
      argv.push_back(nullptr);
      pid_t pid = 0;
      EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
      pids_.push_back(pid);
    }
  }
  ~RankProcesses() {
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
      }
    }
    std::filesystem::remove_all(folder_);
  }

  const std::string& folder() const { return folder_; }
  void Kill(int rank) { kill(pids_[static_cast<size_t>(rank)], SIGKILL); }
  int Join(int rank) {  // wait status
    int status = 0;
    waitpid(std::exchange(pids_[static_cast<size_t>(rank)], 0), &status, 0);
    return status;
  }

 private:
  std::string folder_;
  std::vector<pid_t> pids_;
};

// The arguments behind gtest's.
struct RankArguments {
  RankArguments() {
    at::set_num_threads(1);  // several processes share the cores, and idle OpenMP threads spin
    const std::vector<std::string> arguments = testing::internal::GetArgvs();
    const size_t count = arguments.size();
    folder = arguments.at(count - 3);
    rank = std::stoi(arguments.at(count - 2));
    ranks = std::stoi(arguments.at(count - 1));
  }
  std::unique_ptr<Communicator> Connect() const {
    return MakeGlooCommunicator("dp_cp", std::make_shared<FolderStore>(folder), "p", rank, ranks, "127.0.0.1",
                                kTimeout);
  }
  std::string folder;
  int rank = 0;
  int ranks = 0;
};

TEST(RankProcess, DISABLED_MovesBytes) {
  const RankArguments arguments;
  ExpectCollectivesMoveTheRightBytes(*arguments.Connect());
}

TEST(RankProcess, DISABLED_RunsUntilAPeerIsLost) {
  const RankArguments arguments;
  const auto comm = arguments.Connect();
  at::Tensor output = at::zeros({arguments.ranks * 1000});
  for (int i = 0;; ++i) {
    if (i == 10) {
      std::ofstream(arguments.folder + "/running" + std::to_string(arguments.rank)) << "x";
    }
    try {
      comm->AllGather(device::MemoryOf(at::zeros({1000})), device::MemoryOf(output));
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 closed the connection, it died or left"));
      return;
    }
  }
}

TEST(GlooProcessesTest, CollectivesMoveTheRightBytesBetweenProcesses) {
  for (const int ranks : {2, 3}) {
    RankProcesses processes("MovesBytes", ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(processes.Join(rank), 0);
    }
  }
}

TEST(GlooProcessesTest, KilledProcessIsNoticedQuickly) {
  RankProcesses processes("RunsUntilAPeerIsLost", 2);
  while (!std::filesystem::exists(processes.folder() + "/running0")) {
    std::this_thread::yield();
  }
  const auto begin = std::chrono::steady_clock::now();
  processes.Kill(1);
  EXPECT_EQ(processes.Join(0), 0);
  const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
  std::printf("noticed, reported and ended after %.0f ms\n", seconds * 1e3);
  EXPECT_LT(seconds, 10);  // far from the timeout of a collective, also on a busy machine
  EXPECT_TRUE(WIFSIGNALED(processes.Join(1)));
}

}  // namespace
}  // namespace tandem::comm
