// SPDX-License-Identifier: Apache-2.0
#include "controller/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "controller/store/sqlite.h"
#include "tests/controller/job_builder.h"
#include "tests/controller/store_files.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/seeded_random.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::controller {
namespace {

// Expects `holds` of another process.
void ExpectInChild(const std::function<bool()>& holds) {
  const pid_t pid = fork();
  if (pid == 0) {
    _exit(holds() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(folder_.path(), random_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // Stores what the driver has decided, and closes the store.
  void Keep(Driver& driver) { ASSERT_TRUE(driver.Save(*Open()).ok()); }
  absl::Status Change(const std::string& sql) {
    auto db = Database::Open(folder_.path() + "/controller.db", Database::Sync::kFull);
    return db.ok() ? (*db)->Execute(sql) : db.status();
  }

  platform::TemporaryFolder folder_;
  platform::SeededRandom random_{1};
};

TEST_F(StoreTest, FullDatabaseHasItsOwnCode) {
  absl::StatusOr<std::unique_ptr<Database>> database =
      Database::Open(folder_.path() + "/small.db", Database::Sync::kNormal);
  ASSERT_TRUE(database.ok()) << database.status();
  ASSERT_TRUE((*database)->Execute("PRAGMA max_page_count = 2").ok());
  ASSERT_TRUE((*database)->Execute("CREATE TABLE rows(text TEXT)").ok());
  EXPECT_EQ((*database)->Execute("INSERT INTO rows VALUES (hex(zeroblob(100000)))").code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(StoreTest, IrregularDatabaseFileIsNamed) {
  const std::string path = folder_.path() + "/controller.db";
  for (const std::string kind : platform::kIrregularKinds) {
    std::filesystem::remove_all(path);
    platform::PutIrregularFile(kind, path);
    EXPECT_EQ(Store::Open(folder_.path(), random_).status(),
              absl::InvalidArgumentError("open " + path + ": it is " + kind + ", not a regular file"));
  }
}

TEST_F(StoreTest, ReopeningLoadsLiveJobsInTheNextTerm) {
  Driver driver;
  std::string id;
  {
    std::unique_ptr<Store> store = Open();
    EXPECT_EQ(store->term(), 1);
    id = store->store_id();
    driver.Run(v1::JOB_STATE_RUNNING);
    driver.Feed(SubmitOf("waits", 1, "r1"));
    driver.Feed(SubmitOf("gone", 1, "r2"));
    driver.Feed(Cancel{.job = "gone", .reason = "CancelledByUser", .actor = "local"});
    ASSERT_TRUE(driver.Save(*store).ok());
  }
  std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->term(), 2);
  EXPECT_EQ(store->store_id(), id);
  const absl::StatusOr<State> state = store->Load();
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->last_seq, driver.state.last_seq);
  EXPECT_EQ(state->jobs.queue(), driver.state.jobs.queue());
  ASSERT_EQ(state->jobs.size(), 2U) << "ended jobs stay in the store";
  EXPECT_EQ(state->jobs.at("id-job").job.SerializeAsString(), driver.Job().SerializeAsString());
  std::vector<v1::Event> events;  // in pages of two
  while (events.size() < driver.events.size()) {
    const auto page = *store->Events("", events.empty() ? 0 : events.back().seq(), 2);
    ASSERT_FALSE(page.empty());
    ASSERT_LE(page.size(), 2U);
    events.insert(events.end(), page.begin(), page.end());
  }
  ASSERT_EQ(events.size(), driver.events.size());
  State folded;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].SerializeAsString(), driver.events[i].SerializeAsString());
    Apply(events[i], folded);
  }
  EXPECT_EQ(folded.jobs.size(), driver.state.jobs.size());
  for (const auto& [job_id, entry] : folded.jobs) {
    const auto row = *store->Row(job_id);
    ASSERT_TRUE(row.has_value()) << job_id;
    EXPECT_EQ(row->job.SerializeAsString(), entry.job.SerializeAsString());
    EXPECT_EQ(row->runtime.SerializeAsString(), entry.runtime.SerializeAsString());
  }
  EXPECT_EQ((*store->Find("gone"))->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ((*store->FindRequest("local", "r2"))->id(), "id-gone");
  EXPECT_FALSE(store->FindRequest("local", "r3")->has_value());
  EXPECT_FALSE(store->FindRequest("other", "r2")->has_value()) << "request ids are an owner's";
}

TEST_F(StoreTest, NamesFindLiveThenNewestEndedJobs) {
  Driver driver;
  std::unique_ptr<Store> store = Open();
  for (const char* id : {"one", "two", "three"}) {
    Submit submit = SubmitOf("same", 1);
    submit.id = id;
    driver.Feed(submit);
    ASSERT_TRUE(driver.Save(*store).ok());
    EXPECT_EQ((*store->Find("same"))->id(), id);
    if (std::string(id) != "three") {
      driver.Feed(Cancel{.job = id, .reason = "CancelledByUser", .actor = "local"});
      ASSERT_TRUE(driver.Save(*store).ok());
    }
  }
  EXPECT_EQ((*store->Find("same"))->id(), "three");
  EXPECT_EQ((*store->Find("one"))->id(), "one");
  EXPECT_FALSE(store->Find("none")->has_value());
  const auto newest_first = *store->List(0, 2, {});
  ASSERT_EQ(newest_first.size(), 2U);
  EXPECT_EQ(newest_first[0].second.id(), "three");
  EXPECT_EQ(store->List(newest_first[1].first, 2, {})->front().second.id(), "one");
  EXPECT_EQ(store->List(0, 10, {v1::JOB_STATE_CANCELLED})->size(), 2U);
}

TEST_F(StoreTest, ASecondControllerOnTheDirectoryIsRefused) {
  int opened[2];
  ASSERT_EQ(pipe(opened), 0);
  const pid_t pid = fork();  // before the store is open: a child would inherit what SQLite has of it
  if (pid == 0) {
    close(opened[1]);
    char byte = 0;
    platform::SeededRandom random(2);
    const bool ready = read(opened[0], &byte, 1) == 1;
    const auto second = Store::Open(folder_.path(), random);
    _exit(ready && absl::IsFailedPrecondition(second.status()) &&
                  second.status().message().find("another controller") != std::string::npos
              ? 0
              : 1);
  }
  std::unique_ptr<Store> store = Open();
  ASSERT_EQ(write(opened[1], "", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  close(opened[0]);
  close(opened[1]);
}

TEST_F(StoreTest, AnUnknownSchemaRefusesToStart) {
  Open().reset();
  ASSERT_TRUE(Change("UPDATE meta SET value = '2' WHERE key = 'schema'").ok());
  const auto store = Store::Open(folder_.path(), random_);
  EXPECT_TRUE(absl::IsFailedPrecondition(store.status()));
  EXPECT_THAT(std::string(store.status().message()), ::testing::HasSubstr("schema 2 is not known"));
}

TEST_F(StoreTest, AnUnknownKindOfEventRefusesToStart) {
  Open().reset();
  ASSERT_TRUE(Change("INSERT INTO event_kinds VALUES ('teleported', 1)").ok());
  const auto store = Store::Open(folder_.path(), random_);
  EXPECT_TRUE(absl::IsFailedPrecondition(store.status()));
  EXPECT_THAT(std::string(store.status().message()), ::testing::HasSubstr("teleported"));
}

TEST_F(StoreTest, AmbiguousIdPrefixListsTheIds) {
  Driver driver;
  std::unique_ptr<Store> store = Open();
  for (const char* id : {"abcd00000001", "abcd00000002", "abcdef000003", "0bcd00000004"}) {
    Submit submit = SubmitOf(std::string("job-") + id, 1);
    submit.id = id;
    driver.Feed(submit);
  }
  ASSERT_TRUE(driver.Save(*store).ok());
  EXPECT_EQ(store->Lookup("abcde")->id(), "abcdef000003");
  EXPECT_EQ(store->Lookup("0bcd")->id(), "0bcd00000004");
  const absl::Status several = store->Lookup("abcd").status();
  EXPECT_EQ(several.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(several.message(),
            "the ids of several jobs begin with abcd: abcd00000001, abcd00000002, abcdef000003; give more of "
            "the id");
  EXPECT_EQ(store->Lookup("abcf").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Lookup("abcd%").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Lookup("").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StoreTest, AFailedCommitLeavesNothing) {
  Driver driver;
  std::unique_ptr<Store> store = Open();
  driver.Feed(SubmitOf("job", 1));
  ASSERT_TRUE(driver.Save(*store).ok());
  std::vector<v1::Event> again = driver.events;  // the same seq twice
  again.front().set_seq(99);
  EXPECT_FALSE(store->Commit({again.front(), driver.events.front()}, {}).ok());
  EXPECT_EQ(store->Events("", 0, 100)->size(), driver.events.size());
}

TEST_F(StoreTest, AForeignFileIsNamedAndKept) {
  std::filesystem::create_directories(folder_.path());
  const std::string path = folder_.path() + "/controller.db";
  const std::string text(5000, 'x');
  std::ofstream(path) << text;
  const auto store = Store::Open(folder_.path(), random_);
  EXPECT_EQ(store.status().message(), path +
                                          ": SQLite: file is not a database; put a copy of it back, or give "
                                          "another --state and submit the jobs again");
  EXPECT_EQ(ReadAll(path), text);
}

TEST_F(StoreTest, UnopenableFileIsNamed) {
  std::filesystem::create_directories(folder_.path());
  std::filesystem::create_symlink("/no/such/folder/file", folder_.path() + "/controller.db");
  EXPECT_EQ(
      Store::Open(folder_.path(), random_).status().message(),
      folder_.path() + "/controller.db: SQLite: unable to open database file: No such file or directory");
}

TEST_F(StoreTest, ADamagedJobRefusesToStart) {
  Driver driver;
  driver.Feed(SubmitOf("job", 1));
  Keep(driver);
  ASSERT_TRUE(Change("UPDATE jobs SET job = x'ffff'").ok());
  EXPECT_THAT(std::string(Open()->Load().status().message()),
              ::testing::AllOf(::testing::HasSubstr("the store holds a job that cannot be read"),
                               ::testing::HasSubstr("another --state")));
}

TEST_F(StoreTest, TwoRowsOfOneJobRefuseToStart) {
  Driver driver;
  driver.Feed(SubmitOf("one", 1));
  driver.Feed(SubmitOf("two", 1));
  Keep(driver);
  ASSERT_TRUE(Change("UPDATE jobs SET job = (SELECT job FROM jobs WHERE id = 'id-one')").ok());
  const absl::Status status = Open()->Load().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(
                  ::testing::StartsWith(folder_.path() + "/controller.db: the store holds job id-one twice"),
                  ::testing::HasSubstr("another --state")));
}

TEST_F(StoreTest, ADamagedPageAnywhereRefusesToStart) {
  Driver driver;
  for (int i = 0; i < 40; ++i) {
    driver.Feed(SubmitOf("job-" + std::to_string(i), 1));
  }
  Keep(driver);
  const std::string path = folder_.path() + "/controller.db";
  DamageEachPage(path, [&](const std::string& damaged) {
    const absl::Status status = Store::Open(folder_.path(), random_).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(::testing::StartsWith(path), ::testing::HasSubstr("put a copy of it back"),
                                 ::testing::Not(::testing::HasSubstr("\n"))));
    EXPECT_TRUE(ReadAll(path) == damaged) << "it is left as it is";
  });
}

TEST_F(StoreTest, UnwritableFolderIsNamed) {
  const std::string folder = folder_.path() + "/state";
  Open().reset();
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(folder, std::filesystem::perms(0555));
  ExpectInChild([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) {
      return false;
    }
    platform::SeededRandom random(2);
    return Store::Open(folder, random).status() ==
           absl::PermissionDeniedError(
               "cannot write the state directory " + folder +
               ": Permission denied; let this user write it, or give another --state");
  });
}

TEST_F(StoreTest, UncreatableFolderIsNamed) {
  std::ofstream(folder_.path() + "/file") << "x";
  EXPECT_THAT(
      std::string(Store::Open(folder_.path() + "/file", random_).status().message()),
      ::testing::AllOf(::testing::HasSubstr("cannot make the state directory " + folder_.path() + "/file: "),
                       ::testing::EndsWith("; make it for this user, or give another --state")));
}

}  // namespace
}  // namespace tandem::controller
