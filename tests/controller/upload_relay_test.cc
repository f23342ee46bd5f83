// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/upload_relay.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "controller/metrics/progress_board.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/seeded_random.h"

namespace tandem::controller {
namespace {

constexpr size_t kChunk = 64 << 10;

// A relay, and workers that send what they are asked for as long as it is taken.
class UploadRelayTest : public ::testing::Test {
 protected:
  // A reader of the logs of `ranks` ranks of worker w.
  uint64_t Open(const std::string& caller, int ranks) {
    std::vector<UploadRelay::Wanted> wanted(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      wanted[static_cast<size_t>(rank)].slot.set_rank(rank);
      wanted[static_cast<size_t>(rank)].slot.set_worker("w");
    }
    asked_.clear();
    const absl::StatusOr<uint64_t> reader = relay_.Open(caller, wanted, [this] { ++mores_; });
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.value_or(0);
  }

  UploadRelay::Taken Deliver(const std::string& upload) {
    v1::UploadChunk chunk;
    chunk.set_upload(upload);
    chunk.mutable_chunk()->set_data(std::string(kChunk, 'x'));
    return relay_.Deliver(chunk, {tls::Role::kWorker, "w"}, [this, upload] { ++resumed_[upload]; });
  }

  // Sends until the relay takes no more, and at most 1,000; the number of chunks.
  int Fill(const std::string& upload) {
    int taken = 0;
    while (taken < 1000 && Deliver(upload) == UploadRelay::Taken::kOk) {
      ++taken;
    }
    return taken;
  }

  UploadRelay::Next Read(uint64_t reader) {
    UploadRelay::Next next = relay_.Read(reader);
    for (const auto& resume : next.resumes) {
      resume();
    }
    return next;
  }

  platform::FakeClock clock_;
  platform::SeededRandom random_{1};
  ProgressBoard progress_{clock_};
  std::vector<std::string> asked_;  // uploads of the newest reader
  std::map<std::string, int> resumed_;
  int mores_ = 0;
  UploadRelay relay_{
      [this](const std::string& /*worker*/, const v1::UploadRequest& request) {
        asked_.push_back(request.upload());
        return true;
      },
      progress_, clock_, random_,
      UploadRelay::Limits{
          .bytes_of_reader = 4 * kChunk, .bytes = 10 * kChunk, .readers_of_caller = 3, .readers = 5}};
};

TEST_F(UploadRelayTest, StalledReaderHoldsFewBytes) {
  const uint64_t reader = Open("user/a", 100);
  for (const std::string& upload : asked_) {
    Fill(upload);
  }
  EXPECT_LE(relay_.bytes(), 5 * kChunk);
  const std::string first = asked_[0];
  EXPECT_EQ(Deliver(first), UploadRelay::Taken::kGone) << "one chunk of an upload may wait";
  EXPECT_EQ(resumed_[first], 0);
  EXPECT_TRUE(Read(reader).chunk.has_value());
  EXPECT_EQ(resumed_[first], 1);
  EXPECT_EQ(Deliver(first), UploadRelay::Taken::kOk);
  relay_.Close(reader);
  EXPECT_EQ(relay_.bytes(), 0U);
  EXPECT_EQ(Deliver(first), UploadRelay::Taken::kGone);
}

TEST_F(UploadRelayTest, StalledReadersLeaveRoomForOthers) {
  std::vector<uint64_t> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(Open("user/a", 1));
    Fill(asked_[0]);
  }
  EXPECT_LE(relay_.bytes(), 11 * kChunk);
  const uint64_t reader = Open("user/b", 1);
  const std::string upload = asked_[0];
  EXPECT_EQ(Deliver(upload), UploadRelay::Taken::kFull);
  relay_.Tick();
  EXPECT_EQ(resumed_[upload], 0) << "they have ten seconds";
  clock_.Advance(absl::Seconds(11));
  relay_.Tick();
  EXPECT_EQ(resumed_[upload], 1);
  EXPECT_EQ(Deliver(upload), UploadRelay::Taken::kOk);
  EXPECT_TRUE(Read(reader).chunk.has_value());
  const UploadRelay::Next ended = Read(idle[0]);
  EXPECT_TRUE(ended.end);
  EXPECT_EQ(ended.status.message(),
            "nothing of this log or profile was read for 10s, and the controller needs the memory for other "
            "readers; read it again");
}

TEST_F(UploadRelayTest, OneCallerCannotOpenAllReaders) {
  for (int i = 0; i < 3; ++i) {
    Open("user/a", 1);
  }
  EXPECT_EQ(relay_.Open("user/a", {}, [] {}).status().message(),
            "user/a reads 3 logs and profiles now, the most that one caller may read at a time; end some");
  const uint64_t other = Open("user/b", 1);
  Open("user/b", 1);
  EXPECT_FALSE(relay_.Open("user/c", {}, [] {}).ok());
  relay_.Close(other);
  EXPECT_TRUE(relay_.Open("user/c", {}, [] {}).ok());
}

TEST_F(UploadRelayTest, OverlongLogPieceIsRefused) {
  Open("user/a", 1);
  v1::UploadChunk chunk;
  chunk.set_upload(asked_[0]);
  chunk.mutable_chunk()->set_data(std::string(UploadRelay::kMostLogBytes + 1, 'x'));
  EXPECT_EQ(relay_.Deliver(chunk, {tls::Role::kWorker, "w"}, [] {}), UploadRelay::Taken::kTooLong);
}

}  // namespace
}  // namespace tandem::controller
