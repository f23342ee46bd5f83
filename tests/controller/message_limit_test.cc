// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/message_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

namespace tandem::controller {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string BigEndian(uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
  return out;
}

std::string Frame(int type, int flags, uint32_t stream, const std::string& payload) {
  return BigEndian(static_cast<uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + BigEndian(stream, 4) + payload;
}

std::string Data(uint32_t stream, const std::string& payload, bool last = false) {
  return Frame(0, last ? 1 : 0, stream, payload);
}

std::string Headers(uint32_t stream, int flags = 4) { return Frame(1, flags, stream, "fields"); }

std::string Reset(uint32_t stream, uint32_t error) { return Frame(3, 0, stream, BigEndian(error, 4)); }

// The beginning of a message.
std::string Prefix(uint32_t length) { return std::string(1, '\0') + BigEndian(length, 4); }

std::string Message(uint32_t length) { return Prefix(length) + std::string(length, 'm'); }

// What leaves for bytes that come in pieces of `piece`.
MessageLimit::Output Pass(MessageLimit& limit, const std::string& bytes, size_t piece = 1 << 20) {
  MessageLimit::Output out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(limit.FromClient(std::string_view(bytes).substr(at, piece), out));
  }
  return out;
}

TEST(MessageLimitTest, MessagesUpToTheLimitPassUnchangedInPiecesOfAnySize) {
  const std::string bytes = kPreface + Headers(1) + Data(1, Message(100)) +   // in one frame
                            Data(1, Message(60).substr(0, 3)) + Headers(3) +  // interleaved with another
                            Data(3, Message(100).substr(0, 50)) + Data(1, Message(60).substr(3), true) +
                            Data(3, Message(100).substr(50) + Message(0) + Message(7), true) +
                            Frame(4, 0, 0, "settings");
  for (const size_t piece : {1U, 2U, 3U, 7U, 64U, 4096U}) {
    UnfinishedMessages unfinished{.most_bytes = 1 << 30};
    MessageLimit limit(100, unfinished);
    const MessageLimit::Output out = Pass(limit, bytes, piece);
    EXPECT_EQ(out.to_server, bytes) << piece;
    EXPECT_EQ(out.to_client, "") << piece;
    EXPECT_EQ(limit.num_refused(), 0) << piece;
  }
}

TEST(MessageLimitTest, AMessageOverTheLimitIsRefusedWhenItsLengthHasPassed) {
  for (const size_t piece : {1U, 5U, 4096U}) {
    UnfinishedMessages unfinished{.most_bytes = 1 << 30};
    MessageLimit limit(100, unfinished);
    const std::string begin = kPreface + Headers(1) + Data(1, Prefix(101) + "begin");
    const MessageLimit::Output out = Pass(limit, begin, piece);
    EXPECT_EQ(out.to_server, begin + Reset(1, 8)) << "the call is cancelled for the server";
    EXPECT_THAT(out.to_client, AllOf(HasSubstr("application/grpc"), HasSubstr("grpc-status"),
                                     HasSubstr("a message of 101 bytes was refused; at most 100 bytes"),
                                     EndsWith(Reset(1, 0))));
    const std::string rest = Data(1, std::string(96, 'm')) + Data(1, Prefix(5000), true);
    const MessageLimit::Output after = Pass(limit, rest, piece);
    EXPECT_EQ(after.to_server, rest) << "for flow control; nothing in it is taken for another message";
    EXPECT_EQ(after.to_client, "");
    EXPECT_EQ(limit.num_refused(), 1);
  }
}

TEST(MessageLimitTest, ALengthThatIsSplitOverFramesIsFound) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  Pass(limit, kPreface + Headers(1) + Data(1, Message(3) + Prefix(1 << 30).substr(0, 2)));
  EXPECT_EQ(limit.num_refused(), 0);
  Pass(limit, Data(1, Prefix(1 << 30).substr(2)));
  EXPECT_EQ(limit.num_refused(), 1);
}

TEST(MessageLimitTest, OtherStreamsOfTheConnectionAreUntouched) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  Pass(limit, kPreface + Headers(1) + Headers(3) + Data(3, Message(50).substr(0, 20)));
  Pass(limit, Data(1, Prefix(200)));
  const std::string more = Data(3, Message(50).substr(20) + Message(100), true) + Data(1, "rest");
  EXPECT_EQ(Pass(limit, more).to_server, more);
  EXPECT_EQ(limit.num_refused(), 1);
}

TEST(MessageLimitTest, TheRefusalDoesNotCutAFrameOrAHeaderBlockOfTheServer) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  MessageLimit::Output out;
  const std::string headers = Headers(3, /*flags=*/0);
  limit.FromServer(headers.substr(0, 4), out);
  ASSERT_TRUE(limit.FromClient(kPreface + Headers(1) + Data(1, Prefix(200)), out));
  EXPECT_EQ(out.to_client, headers.substr(0, 4)) << "in the middle of a frame";
  limit.FromServer(headers.substr(4), out);
  EXPECT_EQ(out.to_client, headers) << "in the middle of a header block";
  limit.FromServer(Frame(9, 4, 3, "end") + Data(3, "answer"), out);
  EXPECT_THAT(out.to_client, StartsWith(headers + Frame(9, 4, 3, "end")));
  EXPECT_THAT(out.to_client, EndsWith(Reset(1, 0) + Data(3, "answer")));
}

TEST(MessageLimitTest, AnAnswerThatHasBegunEndsWithTrailersAlone) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  MessageLimit::Output out;
  Pass(limit, kPreface + Headers(1));
  limit.FromServer(Headers(1) + Data(1, Message(5)), out);
  out = Pass(limit, Data(1, Prefix(200)));
  EXPECT_THAT(out.to_client, HasSubstr("grpc-status"));
  EXPECT_THAT(out.to_client, ::testing::Not(HasSubstr("content-type"))) << "of the headers that have passed";
}

TEST(MessageLimitTest, ACallThatTheServerHasEndedGetsNoSecondEnd) {
  for (const std::string& end : {Headers(1, /*flags=*/5), Reset(1, 0)}) {
    UnfinishedMessages unfinished{.most_bytes = 1 << 30};
    MessageLimit limit(100, unfinished);
    MessageLimit::Output out;
    Pass(limit, kPreface + Headers(1) + Headers(3));
    limit.FromServer(end, out);
    out = Pass(limit, Data(1, Prefix(200)));
    EXPECT_EQ(out.to_server, Data(1, Prefix(200))) << "the server drops it";
    EXPECT_EQ(out.to_client, "");
    EXPECT_EQ(limit.num_refused(), 0);
    Pass(limit, Data(3, Prefix(200)));
    EXPECT_EQ(limit.num_refused(), 1) << "the others are looked at as before";
  }
}

TEST(MessageLimitTest, AnEndThatTheServerIsSendingStands) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  MessageLimit::Output out;
  const std::string end = Headers(1, /*flags=*/5);
  Pass(limit, kPreface + Headers(1));
  limit.FromServer(end.substr(0, 12), out);
  ASSERT_TRUE(limit.FromClient(Data(1, Prefix(200)), out));
  limit.FromServer(end.substr(12) + Data(3, "answer"), out);
  EXPECT_EQ(out.to_client, end + Data(3, "answer"));
}

TEST(MessageLimitTest, AnAnswerThatBeginsBeforeTheRefusalIsSentHasOneBeginning) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  MessageLimit::Output out;
  const std::string begin = Headers(1);
  Pass(limit, kPreface + Headers(1));
  limit.FromServer(begin.substr(0, 4), out);  // of the frame's own header: its kind is not known yet
  ASSERT_TRUE(limit.FromClient(Data(1, Prefix(200)), out));
  limit.FromServer(begin.substr(4), out);
  EXPECT_THAT(out.to_client, StartsWith(begin));
  EXPECT_THAT(out.to_client, HasSubstr("grpc-status"));
  EXPECT_THAT(out.to_client, ::testing::Not(HasSubstr("content-type")));
}

class UnfinishedMessagesTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kLarge = 100'000;

  // A connection with one open call.
  MessageLimit& Connect() {
    MessageLimit& limit = connections_.emplace_back(1 << 20, unfinished_);
    Pass(limit, kPreface + Headers(1));
    return limit;
  }

  UnfinishedMessages unfinished_{.most_bytes = 2 * kLarge};
  std::list<MessageLimit> connections_;
};

TEST_F(UnfinishedMessagesTest, TheOneThatIsTooMuchIsRefusedUntilAnotherHasEnded) {
  MessageLimit& first = Connect();
  MessageLimit& second = Connect();
  Pass(first, Data(1, Message(kLarge).substr(0, 5)));
  Pass(second, Data(1, Message(kLarge).substr(0, kLarge)));
  MessageLimit& third = Connect();
  const MessageLimit::Output refused = Pass(third, Data(1, Prefix(kLarge) + "begin"));
  EXPECT_THAT(refused.to_server, EndsWith(Reset(1, 8)));
  EXPECT_THAT(
      refused.to_client,
      AllOf(HasSubstr("others that have not ended have 200000 bytes, and at most 200000 are held of all"),
            EndsWith(Reset(1, 0))));
  Pass(second, Data(1, Message(kLarge).substr(kLarge)));  // its last bytes
  Pass(third, Headers(3) + Data(3, Prefix(kLarge)));
  EXPECT_EQ(third.num_refused(), 1) << "there is room again";
}

TEST_F(UnfinishedMessagesTest, SmallOnesPassWhateverIsUnfinished) {
  unfinished_.bytes = unfinished_.most_bytes;
  MessageLimit& limit = Connect();
  for (int i = 0; i < 1000; ++i) {
    Pass(limit, Headers(static_cast<uint32_t>(2 * i + 1)) +
                    Data(static_cast<uint32_t>(2 * i + 1), Prefix(MessageLimit::kSmallBytes)));
  }
  EXPECT_EQ(limit.num_refused(), 0);
}

TEST_F(UnfinishedMessagesTest, WhatEndsACallOrAConnectionGivesItsShareBack) {
  const std::string begin = Data(1, Prefix(kLarge) + "begin");
  const auto bytes_after = [&](const std::string& more) {
    MessageLimit& limit = Connect();
    Pass(limit, begin + more);
    return unfinished_.bytes;
  };
  EXPECT_EQ(bytes_after(""), kLarge);
  connections_.clear();
  EXPECT_EQ(unfinished_.bytes, 0) << "the connection ended";
  EXPECT_EQ(bytes_after(Reset(1, 8)), 0) << "the client cancelled";
  EXPECT_EQ(bytes_after(Data(1, "", /*last=*/true)), 0) << "the client ended the call within the message";
  MessageLimit& limit = Connect();
  Pass(limit, begin);
  MessageLimit::Output out;
  limit.FromServer(Reset(1, 0), out);
  EXPECT_EQ(unfinished_.bytes, 0) << "the server ended the call";
  Pass(limit, Headers(3) + Data(3, Prefix(kLarge) + "begin") + Headers(5) + Data(5, Prefix(2 << 20)));
  EXPECT_EQ(limit.num_refused(), 1);
  EXPECT_EQ(unfinished_.bytes, kLarge) << "what is refused counts nothing";
}

TEST(MessageLimitTest, WhatIsNotHttp2PassesAsItIs) {
  const std::string request = "PRI-vate GET / HTTP/1.1\r\n\r\n" + Data(1, Prefix(200));
  for (const size_t piece : {1U, 4096U}) {
    UnfinishedMessages unfinished{.most_bytes = 1 << 30};
    MessageLimit limit(100, unfinished);
    EXPECT_EQ(Pass(limit, request, piece).to_server, request);
    EXPECT_EQ(limit.num_refused(), 0);
  }
}

TEST(MessageLimitTest, TooManyOpenCallsEndTheConnection) {
  UnfinishedMessages unfinished{.most_bytes = 1 << 30};
  MessageLimit limit(100, unfinished);
  MessageLimit::Output out;
  ASSERT_TRUE(limit.FromClient(kPreface, out));
  bool good = true;
  uint32_t stream = 1;
  for (; good && stream < 1'000'000; stream += 2) {
    good = limit.FromClient(Headers(stream) + Data(stream, Prefix(10)), out);
    out = {};
  }
  EXPECT_FALSE(good);
  EXPECT_GT(stream, 100'000U) << "but no client of ours";
}

}  // namespace
}  // namespace tandem::controller
