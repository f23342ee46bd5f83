// SPDX-License-Identifier: Apache-2.0
// How much of the controller one caller may take; CallLimitsTest over real sockets and real TLS.
#include "controller/rpc/call_limits.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "controller/rpc/access.h"
#include "tandem/v1/workers.pb.h"
#include "tests/controller/secure_service.h"
#include "tests/platform/fake_clock.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

TEST(RateLimitTest, EachCallerHasABurstAndARate) {
  platform::FakeClock clock;
  RateLimit limit(/*per_second=*/10, /*burst=*/3, clock);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limit.Take("alice"), absl::ZeroDuration());
  }
  EXPECT_EQ(limit.Take("alice"), absl::Milliseconds(100));
  EXPECT_EQ(limit.Take("bob"), absl::ZeroDuration());
  clock.Advance(absl::Milliseconds(50));
  EXPECT_EQ(limit.Take("alice"), absl::Milliseconds(50)) << "what was refused does not count";
  clock.Advance(absl::Milliseconds(50));
  EXPECT_EQ(limit.Take("alice"), absl::ZeroDuration());
  EXPECT_GT(limit.Take("alice"), absl::ZeroDuration());
  clock.Advance(absl::Hours(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limit.Take("alice"), absl::ZeroDuration()) << "never more than a burst";
  }
  EXPECT_GT(limit.Take("alice"), absl::ZeroDuration());
}

constexpr RequestLimits kLimits{.string_bytes = 10, .list_entries = 3};

std::string Why(const google::protobuf::Message& request) {
  return std::string(CheckLimits(request, kLimits).message());
}

TEST(RequestLimitsTest, ALongTextIsNamedByItsPath) {
  v1::SubmitRequest request;
  request.mutable_spec()->mutable_data()->set_train(std::string(10, 'x'));
  EXPECT_EQ(Why(request), "");
  request.mutable_spec()->mutable_data()->set_train(std::string(11, 'x'));
  EXPECT_EQ(Why(request), "spec.data.train: 11 bytes; allowed are at most 10");
}

TEST(RequestLimitsTest, LongListOrMapIsNamed) {
  v1::ReportBatch batch;
  batch.add_reports();
  for (int i = 0; i < 4; ++i) {
    (*batch.mutable_reports(0)->mutable_scalars())[std::to_string(i)] = i;
  }
  EXPECT_EQ(Why(batch), "reports.scalars: 4 entries; allowed are at most 3");
  v1::WorkerMessage message;
  v1::Inventory& inventory = *message.mutable_hello()->mutable_inventory();
  inventory.add_slots()->set_name("short");
  EXPECT_EQ(Why(message), "");
  inventory.add_slots()->set_name("much too long");
  EXPECT_EQ(Why(message), "hello.inventory.slots.name: 13 bytes; allowed are at most 10");
}

TEST(RequestLimitsTest, NumbersAreBoundedByMessageSize) {
  v1::ReportBatch batch;
  v1::Norms& norms = *batch.add_reports()->mutable_norms();
  for (int i = 0; i < 100; ++i) {
    norms.add_weight(1);
  }
  EXPECT_EQ(Why(batch), "");
  v1::UploadChunk chunk;
  chunk.mutable_chunk()->set_data(std::string(100, 'x'));
  EXPECT_EQ(Why(chunk), "");
}

using CallLimitsTest = SecureServiceTest;

TEST_F(CallLimitsTest, OnlyACallerAboveItsRateMustWait) {
  JobClient alice(address(), Credentials(kOwner));
  JobClient bob(address(), Credentials(kOtherUser));
  grpc::Status status;
  v1::Job job;
  for (int i = 0; i < 5000 && status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED; ++i) {
    status = alice.Get("none", job);
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("user/alice calls too often; allowed are 50 calls a second; try again in"));
  EXPECT_EQ(bob.Get("none", job).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Streams of one of gRPC's own services that a client opens and leaves open.
class LeftOpen {
 public:
  LeftOpen(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
           std::string method)
      : method_(std::move(method)) {
    for (const char* name : {"a", "b"}) {  // a connection has at most a thousand streams
      grpc::ChannelArguments arguments;
      arguments.SetString("connection", name);
      stubs_.emplace_back(grpc::CreateCustomChannel(address, credentials, arguments));
    }
  }
  ~LeftOpen() {
    for (const auto& stream : streams_) {
      stream->context.TryCancel();
    }
    Await(streams_.size());
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Open() {
    streams_.push_back(std::make_unique<Stream>());
    Stream& stream = *streams_.back();
    stream.call = stubs_[streams_.size() % 2].PrepareCall(&stream.context, method_, &queue_);
    stream.call->StartCall(&stream.call);
    while (Next() != &stream.call) {
    }
    const grpc::Slice nothing;
    stream.call->Write(grpc::ByteBuffer(&nothing, 1), nullptr);
    stream.call->Finish(&stream.status, &stream.status);
  }

  // Waits until that many have ended.
  void Await(size_t ended) {
    while (ended_.size() < ended) {
      Next();
    }
  }
  const std::vector<grpc::StatusCode>& ended() const { return ended_; }

 private:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    grpc::Status status;
  };

  // The tag of the next thing that has happened: of a start `call`, of an end `status`, of a write null.
  void* Next() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    for (const auto& stream : streams_) {
      if (tag == &stream->status) {
        ended_.push_back(stream->status.error_code());
      }
    }
    return tag;
  }

  const std::string method_;
  std::vector<grpc::GenericStub> stubs_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<grpc::StatusCode> ended_;
};

int Threads() {
  int threads = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    ++threads;
  }
  return threads;
}

TEST_F(CallLimitsTest, StreamsOfReflectionHaveFewThreads) {
  const int before = Threads();
  LeftOpen streams(address(), Credentials(kOtherUser),
                   "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  for (int i = 0; i < 300; ++i) {
    streams.Open();
  }
  streams.Await(200);
  EXPECT_THAT(streams.ended(), ::testing::Each(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_LE(Threads(), before + 100);
  v1::Job job;
  EXPECT_EQ(JobClient(address(), Credentials(kOwner)).Get("none", job).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(CallLimitsTest, StreamsAreLimitedPerUser) {
  JobClient alice(address(), Credentials(kOwner));
  JobClient bob(address(), Credentials(kOtherUser));
  v1::Job job;
  {
    LeftOpen watches(address(), Credentials(kOwner), "/grpc.health.v1.Health/Watch");
    for (size_t i = 0; i < Access::kMostOpenCalls + 50; ++i) {
      watches.Open();
    }
    watches.Await(50);
    EXPECT_THAT(watches.ended(), ::testing::Each(grpc::StatusCode::CANCELLED));
    EXPECT_THAT(alice.Get("none", job).error_message(), HasSubstr("user/alice has 1000 calls open"));
    EXPECT_EQ(bob.Get("none", job).error_code(), grpc::StatusCode::NOT_FOUND);
  }
  JobClient::Until([&] {
    absl::SleepFor(absl::Milliseconds(50));
    return alice.Get("none", job).error_code() == grpc::StatusCode::NOT_FOUND;
  });
}

}  // namespace
}  // namespace tandem::controller
