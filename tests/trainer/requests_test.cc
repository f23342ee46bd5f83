// SPDX-License-Identifier: Apache-2.0
#include "trainer/requests.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace tandem::trainer {
namespace {

using Ids = std::vector<uint64_t>;

TEST(RequestBoxTest, AnswersOnlyWhatWasTaken) {
  RequestBox box;
  box.Add(kRequestCheckpoint, 1);
  box.Add(kRequestStop, 2);
  EXPECT_EQ(box.Take(), kRequestCheckpoint | kRequestStop);
  box.Add(kRequestCheckpoint, 3);  // after the ranks agreed: it belongs to the next step
  EXPECT_EQ(box.Finish(), (Ids{1, 2}));
  EXPECT_EQ(box.Finish(), Ids{});
  EXPECT_EQ(box.Take(), uint32_t{kRequestCheckpoint});
  EXPECT_EQ(box.Finish(), Ids{3});
  EXPECT_EQ(box.Take(), 0u);
}

TEST(RequestBoxTest, RepeatedRequestActsOnce) {
  RequestBox box;
  box.Add(kRequestCheckpoint, 1);
  EXPECT_EQ(box.Take(), uint32_t{kRequestCheckpoint});
  box.Add(kRequestCheckpoint, 1);
  EXPECT_EQ(box.Finish(), Ids{1});
  EXPECT_EQ(box.Take(), 0u);
}

TEST(RequestBoxTest, EndAnswersWhatCameTooLate) {
  RequestBox box;
  box.Add(kRequestCheckpoint, 1);
  box.Take();
  box.Add(kRequestStop, 2);
  EXPECT_EQ(box.FinishAll(), (Ids{1, 2}));
}

TEST(RequestBoxTest, ProfileIsWantedUntilAgreed) {
  RequestBox box;
  EXPECT_EQ(box.WantedProfile(), ProfileSteps{});
  box.AddProfile({.id = 5, .steps = 2});
  box.AddProfile({.id = 3, .steps = 1, .serialized = true});
  EXPECT_EQ(box.WantedProfile().id, 5u);
  EXPECT_EQ(box.WantedProfile().id, 5u);
  box.ProfileAgreed(5);
  EXPECT_EQ(box.WantedProfile(), (ProfileSteps{.id = 3, .steps = 1, .serialized = true}));
  box.ProfileAgreed(3);
  box.ProfileAgreed(7);  // another rank was asked first
  box.AddProfile({.id = 7, .steps = 1});
  EXPECT_EQ(box.WantedProfile(), ProfileSteps{});
}

TEST(ProfileQueueTest, OneRequestAfterTheOtherOverlappedThenSerialized) {
  ProfileQueue queue;
  EXPECT_EQ(queue.next(), Recording::kNone);
  queue.Add({.id = 1, .steps = 2, .serialized = true});
  queue.Add({.id = 2, .steps = 1});
  std::vector<std::tuple<Recording, uint64_t, bool>> steps;
  while (queue.next() != Recording::kNone) {
    const Recording recording = queue.next();
    const ProfileQueue::Recorded recorded = queue.Advance();
    steps.emplace_back(recording, recorded.id, recorded.last);
  }
  EXPECT_EQ(steps, (std::vector<std::tuple<Recording, uint64_t, bool>>{{Recording::kOverlapped, 1, false},
                                                                       {Recording::kOverlapped, 1, false},
                                                                       {Recording::kSerialized, 1, false},
                                                                       {Recording::kSerialized, 1, true},
                                                                       {Recording::kOverlapped, 2, true}}));
}

}  // namespace
}  // namespace tandem::trainer
