// SPDX-License-Identifier: Apache-2.0
#include "worker/cut_texts.h"

#include <gtest/gtest.h>

#include <string>

#include "tandem/v1/workers.pb.h"

namespace tandem::worker {
namespace {

TEST(CutTextsTest, LongTextsEndInDotsAtACharacter) {
  v1::WorkerMessage message;
  v1::AttemptStatus& status = *message.mutable_status();
  status.mutable_id()->set_job_id("0123456789");
  status.set_request_error("01234567890");
  v1::RankStatus& rank = *status.add_ranks();
  rank.mutable_cause()->set_message("012345\u00e4\u00e4\u00e4\u00e4");
  (*rank.mutable_ready()->mutable_sent_bytes())["a long name of a purpose"] = 1;
  CutTexts(message, 10);
  EXPECT_EQ(status.id().job_id(), "0123456789");
  EXPECT_EQ(status.request_error(), "0123456...");
  EXPECT_EQ(rank.cause().message(), "012345...") << "half of a character is none";
  EXPECT_EQ(rank.ready().sent_bytes().count("a long name of a purpose"), 1U);
}

}  // namespace
}  // namespace tandem::worker
