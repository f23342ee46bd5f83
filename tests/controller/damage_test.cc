// SPDX-License-Identifier: Apache-2.0
// A store whose controller was killed, and whose files were damaged before the next start: it refuses, or has
// all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "controller/store/sqlite.h"
#include "controller/store/store.h"
#include "platform/status_macros.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/store_files.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A store that is open, as it is found after a kill: its files are copied while it is.
class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    store_ = Store::Open(folder_.path() + "/live", random_).value();
    EXPECT_TRUE(store_->Load().ok());
    driver_.Connect("a", 1);
  }

  // Commits what the driver has decided since the last time.
  void Save() {
    for (const auto& [id, entry] : driver_.state.jobs) {
      acknowledged_[id] = entry.job.SerializeAsString();
    }
    ASSERT_TRUE(driver_.Save(*store_).ok());
    driver_.state.jobs.RemoveEnded();
  }
  void Submit(const std::string& name) {
    driver_.Feed(SubmitOf(name, 1, "request-" + name));
    Save();
  }
  void Tidy() {
    for (int second = 0; second < 2; ++second) {
      EXPECT_TRUE(store_->TidyIfQuiet().ok());
    }
  }

  // The folder of a copy as a kill leaves it.
  std::string Killed() {
    const std::string copy = folder_.path() + "/copy" + std::to_string(++copies_);
    std::filesystem::copy(folder_.path() + "/live", copy);
    std::ofstream(copy + "/history.db") << "";  // that there is one is enough
    return copy;
  }

  // What a start on the folder comes to: Unknown where it misses in silence what was acknowledged.
  absl::Status Start(const std::string& folder) {
    platform::SeededRandom random(2);
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(folder, random));
    TANDEM_ASSIGN_OR_RETURN(const State state, store->Load());
    const auto listed = store->List(0, 10000, {});
    std::map<std::string, std::string> found;
    for (const auto& [submitted, job] : *listed) {
      found[job.id()] = job.SerializeAsString();
    }
    for (const auto& [id, bytes] : acknowledged_) {
      if (found[id] != bytes) {
        return absl::UnknownError(id + (found[id].empty() ? " is not there" : " is another one"));
      }
      if (const auto row = store->Row(id); !row.ok() || !row->has_value()) {
        return absl::UnknownError(id + " is not found");
      }
    }
    for (const auto& [id, entry] : driver_.state.jobs) {
      if (!state.jobs.contains(id)) {
        return absl::UnknownError(id + " is not live");
      }
    }
    return state.last_seq == driver_.state.last_seq ? absl::OkStatus()
                                                    : absl::UnknownError("its last event is another one");
  }

  platform::TemporaryFolder folder_;
  platform::SeededRandom random_{1};
  Driver driver_;
  std::unique_ptr<Store> store_;
  std::map<std::string, std::string> acknowledged_;  // job by id
  int copies_ = 0;
};

TEST_F(DamageTest, AFlippedBitInTheLogLosesNothing) {
  for (int i = 0; i < 5; ++i) {
    Submit("job-" + std::to_string(i));
  }
  const std::string folder = Killed();
  std::string log = ReadAll(folder + "/controller.db-wal");
  ASSERT_GT(log.size(), 10000U);
  log[log.size() / 4] ^= 4;
  std::ofstream(folder + "/controller.db-wal") << log;
  EXPECT_EQ(Start(folder), absl::OkStatus());
}

TEST_F(DamageTest, ARemovedLogLosesNothing) {
  Submit("before");
  Tidy();
  Submit("after");
  const std::string folder = Killed();
  std::filesystem::remove(folder + "/controller.db-wal");
  EXPECT_EQ(Start(folder), absl::OkStatus());
}

TEST_F(DamageTest, ARemovedDatabaseRefusesToStart) {
  Submit("job");
  for (const bool journal : {true, false}) {
    const std::string folder = Killed();
    std::filesystem::remove(folder + "/controller.db");
    std::filesystem::remove(folder + "/controller.db-wal");
    if (!journal) {  // of an older build
      std::filesystem::remove(folder + "/controller.journal");
    }
    for (int start = 0; start < 2; ++start) {
      const absl::Status refused = Start(folder);
      EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr("controller.db is missing or empty"), HasSubstr("another --state"),
                        HasSubstr(journal ? "controller.journal" : "history.db")));
    }
  }
}

TEST_F(DamageTest, OlderDatabaseBesideItsJournalIsRefused) {
  Submit("before");
  Tidy();
  const std::string older = Killed();
  Submit("after");
  Tidy();
  const std::string folder = Killed();
  std::filesystem::copy(older + "/controller.db", folder + "/controller.db",
                        std::filesystem::copy_options::overwrite_existing);
  const absl::Status refused = Start(folder);
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("to go on with what is left, move"));
  std::filesystem::remove(folder + "/controller.journal");
  EXPECT_EQ(Start(folder), absl::UnknownError("id-after is not there")) << "as the operator has decided";
}

TEST_F(DamageTest, AQuietSecondEmptiesTheLog) {
  Submit("job");
  EXPECT_TRUE(store_->TidyIfQuiet().ok());
  const std::string log = folder_.path() + "/live/controller.db-wal";
  EXPECT_GT(std::filesystem::file_size(log), 0U) << "there was a commit in this second";
  EXPECT_TRUE(store_->TidyIfQuiet().ok());
  EXPECT_EQ(std::filesystem::file_size(log), 0U);
  EXPECT_TRUE(store_->TidyIfQuiet().ok());
}

TEST_F(DamageTest, JournalCutByAKillIsNoDamage) {
  Submit("one");
  Submit("two");
  const std::string folder = Killed();
  std::filesystem::resize_file(folder + "/controller.journal",
                               std::filesystem::file_size(folder + "/controller.journal") - 10);
  EXPECT_EQ(Start(folder), absl::OkStatus());
}

TEST_F(DamageTest, StoreOfAnOlderBuildHasNoSums) {
  Submit("job");
  const std::string folder = Killed();
  std::filesystem::remove(folder + "/controller.journal");
  {
    auto db = Database::Open(folder + "/controller.db", Database::Sync::kFull);
    ASSERT_TRUE((*db)->Execute("DROP TABLE job_sums").ok());
  }
  EXPECT_EQ(Start(folder), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(folder + "/controller.journal"));
}

// What happens to files: bits that flip, sectors that are gone, an end that is missing, a file that is
// missing.
std::string Damage(const std::string& folder, std::mt19937& rng) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  const std::vector<std::string> files = {"controller.db", "controller.db-wal", "controller.journal"};
  std::string name;
  std::string content;
  do {
    name = files[below(files.size())];
    content = ReadAll(folder + "/" + name);
  } while (content.empty());
  const std::string path = folder + "/" + name;
  switch (below(5)) {
    case 0:
      std::filesystem::remove(path);
      return "remove " + name;
    case 1: {
      const size_t size = below(content.size());
      std::filesystem::resize_file(path, size);
      return "cut " + name + " to " + std::to_string(size) + " of " + std::to_string(content.size());
    }
    case 2: {
      const size_t at = below((content.size() + 511) / 512) * 512;
      const size_t length = std::min<size_t>(512, content.size() - at);
      content.replace(at, length, std::string(length, '\0'));
      std::ofstream(path) << content;
      return "clear a sector of " + name + " at " + std::to_string(at);
    }
    default: {
      const size_t at = below(content.size());
      content[at] = static_cast<char>(content[at] ^ (1 << below(8)));
      std::ofstream(path) << content;
      return "flip a bit of " + name + " at " + std::to_string(at);
    }
  }
}

TEST_F(DamageTest, NoRandomDamageLosesAJobInSilence) {
  const uint32_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  constexpr int kDamages = 45;
  int num_refused = 0;
  for (int i = 0; i < kDamages; ++i) {
    for (int j = 0; j < 3; ++j) {
      Submit("job-" + std::to_string(i) + "-" + std::to_string(j));
    }
    if (i % 3 == 1) {  // two of them end
      for (const char* const which : {"-1", "-2"}) {
        driver_.Feed(
            Cancel{.job = "job-" + std::to_string(i) + which, .reason = "CancelledByUser", .actor = "local"});
      }
      Save();
    }
    if (i % 4 == 2) {
      Tidy();
    }
    const std::string folder = Killed();
    const std::string damage = Damage(folder, rng);
    const absl::Status started = Start(folder);
    EXPECT_FALSE(absl::IsUnknown(started)) << damage << ": " << started;
    EXPECT_TRUE(started.ok() || started.message().find(folder) != std::string::npos) << started;
    num_refused += started.ok() ? 0 : 1;
    std::filesystem::remove_all(folder);
  }
  RecordProperty("refused", num_refused);
}

}  // namespace
}  // namespace tandem::controller
