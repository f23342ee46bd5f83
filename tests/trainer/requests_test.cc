#include "trainer/requests.h"

#include <gtest/gtest.h>

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

TEST(RequestBoxTest, ARequestThatIsToldAgainIsActedOnOnce) {
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

}  // namespace
}  // namespace tandem::trainer
