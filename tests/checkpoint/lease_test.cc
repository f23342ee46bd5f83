// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checkpoint/job_folder.h"
#include "platform/clock.h"
#include "tests/checkpoint/faulty_files.h"
#include "tests/checkpoint/owned_folder.h"
#include "tests/platform/fake_clock.h"

// For how long this machine has slept, which of its clocks only CLOCK_BOOTTIME counts.
std::atomic<int64_t> slept_seconds = 0;
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && clock == CLOCK_BOOTTIME) {
    now->tv_sec += slept_seconds;
  }
  return result;
}

namespace tandem::checkpoint {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

// Of a directory that Mine() owns.
class LeaseTest : public OwnedFolderTest {
 protected:
  void SetUp() override { ASSERT_TRUE(Take(Mine()).ok()); }

  void OtherComesAndGoes() {
    ASSERT_TRUE(Take(Other()).ok());
    ASSERT_TRUE(ReleaseOwnership(files_, directory_, Other()).ok());
    WriteAll(directory_ + "/metrics.jsonl", "");
  }

  // Whether Mine() owns the directory, after ten seconds at most.
  bool BecomesMine() {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    absl::StatusOr<Owner> owner = ReadOwner(files_, directory_);
    while (!(owner.ok() && owner->job == kJob) && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
      owner = ReadOwner(files_, directory_);
    }
    return owner.ok() && owner->job == kJob;
  }

  // Another folder than it was, also where the file system gives a number of a removed one again.
  void RemoveAndMakeAgain() {
    std::filesystem::create_directories(root_ + "/new");
    std::filesystem::remove_all(directory_);
    std::filesystem::rename(root_ + "/new", directory_);
  }

  // A lease of Mine() that may not be lost.
  Lease KeptLease(platform::Files& files, const JobFolder& folder,
                  const platform::Clock& clock = platform::BootClock()) {
    return Lease(
        files, folder, Mine(), [](const std::string& reason) { ADD_FAILURE() << reason; },
        absl::Milliseconds(5), clock);
  }

  // Why a lease of Mine() is lost.
  std::string ReasonOfLoss(platform::Files& files, const platform::Clock& clock) {
    absl::Notification lost;
    std::string reason;
    {
      Lease lease(
          files, FolderAt(directory_), Mine(),
          [&](const std::string& text) {
            reason = text;
            lost.Notify();
          },
          absl::Milliseconds(5), clock);
      EXPECT_TRUE(lost.WaitForNotificationWithTimeout(absl::Seconds(10)));
    }
    return reason;
  }
};

// The files, for an owner that does not run from a look at its file on: `meanwhile` is called then.
ReplacedFiles StoppedFiles(std::function<void()> meanwhile) {
  ReplacedFiles files;
  files.read = [meanwhile = std::move(meanwhile)](const std::string& path) mutable {
    if (path.ends_with("/.owner") && meanwhile) {
      std::exchange(meanwhile, nullptr)();
    }
    return platform::SystemFiles().Read(path);
  };
  return files;
}

// The files; `look` is called with the number of each look at the folder.
ReplacedFiles LookedAtFiles(std::function<void(int)> look) {
  ReplacedFiles files;
  files.id_of_folder = [look = std::move(look), looks = 0](const std::string& path) mutable {
    look(++looks);
    return platform::SystemFiles().IdOfFolder(path);
  };
  return files;
}

TEST_F(LeaseTest, OwnerWakingAfterAnotherStops) {
  platform::FakeClock clock;
  ReplacedFiles files = StoppedFiles([&] {
    OtherComesAndGoes();
    clock.Advance(absl::Hours(1));
  });
  EXPECT_EQ(ReasonOfLoss(files, clock),
            "checkpoint.directory " + directory_ +
                " no longer has an owner: job 0123456789ab (0123456789ab-name) on host here could not "
                "look for 3600 s, in which another job may have saved there; it ends: submit it again "
                "with checkpoint: {resume: newest}");
  EXPECT_THAT(Names(), ElementsAre("metrics.jsonl"));
}

// The look that comes too late does not count, where it sees nothing.
TEST_F(LeaseTest, OwnerWakingWithoutItsFolderStops) {
  platform::FakeClock clock;
  ReplacedFiles files = StoppedFiles([&] {
    OtherComesAndGoes();
    clock.Advance(absl::Hours(1));
  });
  files.list = [was_blind = false](const std::string& folder) mutable {
    return std::exchange(was_blind, true) ? platform::SystemFiles().List(folder)
                                          : absl::UnavailableError("list " + folder + ": Input/output error");
  };
  EXPECT_THAT(ReasonOfLoss(files, clock), HasSubstr("could not look for 3600 s"));
  EXPECT_THAT(Names(), ElementsAre("metrics.jsonl"));
}

TEST_F(LeaseTest, OwnerOfASleepingMachineStops) {
  ReplacedFiles files = StoppedFiles([&] {
    OtherComesAndGoes();
    slept_seconds += 3600;
  });
  EXPECT_THAT(ReasonOfLoss(files, platform::BootClock()),
              ContainsRegex("could not look for 36[0-9][0-9] s, in which another job may have saved there"));
  EXPECT_THAT(Names(), ElementsAre("metrics.jsonl"));
}

TEST_F(LeaseTest, WatchingOwnerRestoresItsFileAnyTime) {
  const JobFolder folder = FolderAt(directory_);
  WriteAll(directory_ + "/metrics.jsonl", "");
  platform::FakeClock clock;
  absl::Notification removed;
  ReplacedFiles files = LookedAtFiles([&](int look) {
    clock.Advance(kRenewal);
    if (look == 3 * (kPatience / kRenewal)) {
      std::filesystem::remove(directory_ + "/.owner");
      removed.Notify();
    }
  });
  Lease lease = KeptLease(files, folder, clock);
  ASSERT_TRUE(removed.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_TRUE(BecomesMine());
  lease.Release();
}

// As a shared file system that is unmounted on this machine alone.
TEST_F(LeaseTest, OwnerOfAnAbsentFolderStopsAfterAnother) {
  platform::FakeClock clock;
  ReplacedFiles files = LookedAtFiles([&](int look) {
    clock.Advance(kRenewal);
    if (look == 2) {
      OtherComesAndGoes();
      std::filesystem::rename(directory_, root_ + "/away");
    }
    if (look == 2 + 2 * (kPatience / kRenewal)) {
      std::filesystem::rename(root_ + "/away", directory_);
    }
  });
  EXPECT_THAT(ReasonOfLoss(files, clock), HasSubstr("could not look for 9 s, in which another job may have"));
  EXPECT_THAT(Names(), ElementsAre("metrics.jsonl"));
}

TEST_F(LeaseTest, OwnerOfAReturningFolderContinues) {
  const JobFolder folder = FolderAt(directory_);
  WriteAll(directory_ + "/metrics.jsonl", "");
  platform::FakeClock clock;
  absl::Notification went_on;
  const int away = 2;
  const int back = away + 2 * static_cast<int>(kPatience / kRenewal);
  ReplacedFiles files = LookedAtFiles([&](int look) {
    clock.Advance(kRenewal);
    if (look == away) {
      std::filesystem::rename(directory_, root_ + "/away");
    }
    if (look == back) {
      std::filesystem::rename(root_ + "/away", directory_);
    }
    if (look == back + 2) {
      went_on.Notify();
    }
  });
  Lease lease = KeptLease(files, folder, clock);
  EXPECT_TRUE(went_on.WaitForNotificationWithTimeout(absl::Seconds(10)));
  lease.Release();
  EXPECT_THAT(Names(), ElementsAre("metrics.jsonl"));
}

TEST_F(LeaseTest, OwnerTakesItsRemadeFolder) {
  const JobFolder folder = FolderAt(directory_);
  RemoveAndMakeAgain();
  ASSERT_TRUE(absl::IsFailedPrecondition(CheckJobFolder(files_, folder, Mine())));
  const platform::FakeClock clock;  // by the machine's, the lease would be lost where that stands still
  Lease lease = KeptLease(files_, folder, clock);
  ASSERT_TRUE(BecomesMine());
  SaveIn(files_, folder, /*ranks=*/2, /*step=*/20);
  EXPECT_TRUE(LoadsAs(Path(20), 1, 20));
  std::filesystem::remove(directory_ + "/.owner");
  EXPECT_TRUE(BecomesMine());
  lease.Release();
  EXPECT_THAT(Names(), ElementsAre("step-20"));
}

// It may have the number of the one that was removed, and be there only after a while.
TEST_F(LeaseTest, SlowOwnerContinuesInAnEmptyFolder) {
  platform::FakeClock clock;
  absl::Notification removed;
  ReplacedFiles files = StoppedFiles([&] {
    std::filesystem::remove(directory_ + "/.owner");
    clock.Advance(absl::Hours(1));
    removed.Notify();
  });
  Lease lease = KeptLease(files, FolderAt(directory_), clock);
  ASSERT_TRUE(removed.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_TRUE(BecomesMine());
  lease.Release();
}

TEST_F(LeaseTest, ForeignFolderGetsNoOwner) {
  const JobFolder folder = FolderAt(directory_);
  std::filesystem::rename(directory_, root_ + "/away");
  std::filesystem::create_directories(directory_);
  WriteAll(directory_ + "/notes", "");
  std::mutex mu;
  std::condition_variable changed;
  int more_looks = 0;
  ReplacedFiles files = LookedAtFiles([&](int) {
    const std::lock_guard lock(mu);
    --more_looks;
    changed.notify_all();
  });
  Lease lease = KeptLease(files, folder);
  const auto looks_ten_times = [&] {
    std::unique_lock lock(mu);
    more_looks = 10;
    return changed.wait_for(lock, std::chrono::seconds(10), [&] { return more_looks <= 0; });
  };
  ASSERT_TRUE(looks_ten_times());
  EXPECT_THAT(Names(), ElementsAre("notes"));
  Steal("other");  // another job may use that one
  std::filesystem::remove(directory_ + "/notes");
  ASSERT_TRUE(looks_ten_times());
  lease.Release();
  EXPECT_THAT(Names(), ElementsAre(".owner"));
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
  EXPECT_EQ(ReadOwner(files_, root_ + "/away")->job, kJob);
}

TEST_F(LeaseTest, ForeignFolderIsLoggedOnce) {
  const JobFolder folder = FolderAt(directory_);
  RemoveAndMakeAgain();
  WriteAll(directory_ + "/data", "");
  absl::Notification looked;
  ReplacedFiles files = LookedAtFiles([&](int look) {
    if (look == 10) {
      looked.Notify();
    }
  });
  testing::internal::CaptureStderr();
  {
    Lease lease = KeptLease(files, folder);
    EXPECT_TRUE(looked.WaitForNotificationWithTimeout(absl::Seconds(10)));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("bring the first one back before the next save"));
}

TEST_F(LeaseTest, LostLeaseReportsOnce) {
  std::mutex mu;
  std::condition_variable changed;
  std::vector<std::string> reasons;
  Lease lease(
      files_, FolderAt(directory_), Mine(),
      [&](const std::string& reason) {
        const std::lock_guard lock(mu);
        reasons.push_back(reason);
        changed.notify_all();
      },
      absl::Milliseconds(5));
  Steal("other");
  {
    std::unique_lock lock(mu);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return !reasons.empty(); }));
  }
  lease.Release();
  EXPECT_THAT(reasons, ElementsAre(HasSubstr("belongs to job other now")));
  EXPECT_EQ(ReadOwner(files_, directory_)->job, "other");
  {
    Lease held(
        files_, FolderAt(directory_), Other(), [](const std::string& reason) { FAIL() << reason; },
        absl::Milliseconds(5));
    held.Release();
  }
  EXPECT_TRUE(absl::IsNotFound(ReadOwner(files_, directory_).status()));
}

}  // namespace
}  // namespace tandem::checkpoint
