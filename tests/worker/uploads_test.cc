// SPDX-License-Identifier: Apache-2.0
#include "worker/uploads.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/v1/workers.grpc.pb.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::worker {
namespace {

// Keeps what is uploaded.
class UploadServer final : public v1::Workers::Service {
 public:
  UploadServer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel({});
  }
  ~UploadServer() override { server_->Shutdown(); }

  grpc::Status Upload(grpc::ServerContext*, grpc::ServerReader<v1::UploadChunk>* reader,
                      v1::UploadDone*) override {
    v1::UploadChunk chunk;
    while (reader->Read(&chunk)) {
      const std::lock_guard lock(mu_);
      if (chunk.has_profile()) {
        said_.push_back(chunk.upload() + ": " +
                        (chunk.profile().error().empty()
                             ? "step " + std::to_string(chunk.profile().timeline().step())
                             : chunk.profile().error()));
      } else if (!chunk.chunk().error().empty()) {
        said_.push_back(chunk.upload() + ": " + chunk.chunk().error());
      } else {
        ++begun_;
      }
      changed_.notify_all();
    }
    const std::lock_guard lock(mu_);
    ++ended_;
    changed_.notify_all();
    return grpc::Status::OK;
  }

  std::vector<std::string> WaitForEnds(int ends) {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ended_ >= ends; });
    return said_;
  }
  void WaitForBegin() {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_ > 0; });
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> said_;
  int begun_ = 0;
  int ended_ = 0;
};

class ProfileUploadTest : public testing::Test {
 protected:
  ProfileUploadTest() { uploads_.RankStarted(rank_); }

  v1::UploadRequest Request(const std::string& upload, uint64_t id) {
    v1::UploadRequest request;
    request.set_upload(upload);
    *request.mutable_id() = IdOf(rank_.attempt);
    request.set_rank(rank_.rank);
    request.mutable_profile()->set_id(id);
    request.mutable_profile()->set_steps(2);
    return request;
  }

  static v1::ProfiledStep Step(uint64_t id, int64_t step, bool last) {
    v1::ProfiledStep profiled;
    profiled.set_id(id);
    profiled.mutable_timeline()->set_step(step);
    profiled.set_last(last);
    return profiled;
  }

  const RankKey rank_{.attempt = {.job = "j", .attempt = 1}, .rank = 3};
  UploadServer server_;
  Uploads uploads_{Uploads::Logs()};
};

TEST_F(ProfileUploadTest, EarlierStepsAreSentToo) {
  uploads_.Add(rank_, Step(8, 4, false));  // of an older profile, which is not asked for any more
  uploads_.Add(rank_, Step(9, 5, false));
  uploads_.Start(server_.channel(), Request("u", 9));
  server_.WaitForBegin();
  uploads_.Add(rank_, Step(7, 6, true));  // of another one
  uploads_.Add(rank_, Step(9, 6, true));
  EXPECT_EQ(server_.WaitForEnds(1), (std::vector<std::string>{"u: step 5", "u: step 6"}));
}

TEST_F(ProfileUploadTest, RankEndingEarlyIsNamed) {
  uploads_.Start(server_.channel(), Request("u", 9));
  uploads_.Add(rank_, Step(9, 5, false));
  uploads_.RankGone(rank_);
  EXPECT_EQ(server_.WaitForEnds(1),
            (std::vector<std::string>{"u: step 5", "u: rank 3 ended before every step was recorded"}));
}

TEST_F(ProfileUploadTest, AStepThatNoMessageHoldsIsRefused) {
  uploads_.Start(server_.channel(), Request("u", 9));
  v1::ProfiledStep step = Step(9, 5, true);
  for (int i = 0; i < 700'000; ++i) {
    step.mutable_timeline()->add_start_ns(int64_t{1} << 40);
  }
  uploads_.Add(rank_, std::move(step));
  const std::vector<std::string> said = server_.WaitForEnds(1);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("a step of 700000 instructions takes"), std::string::npos) << said[0];
}

TEST(LogUploadTest, MoreThanTheMostAtOnceAreRefused) {
  const platform::TemporaryFolder folder;
  const std::string file = folder.Write("rank-0.log", "text");
  UploadServer server;
  Uploads uploads(
      {.file = [&](const RankKey&) { return file; }, .is_live = [](const AttemptKey&) { return true; }});
  v1::UploadRequest request;
  request.set_follow(true);
  for (int i = 0; i <= 64; ++i) {
    request.set_upload(std::to_string(i));
    uploads.Start(server.channel(), request);
  }
  EXPECT_EQ(server.WaitForEnds(1), (std::vector<std::string>{"64: this worker is already sending 64 logs"}));
}

TEST_F(ProfileUploadTest, StopEndsWhatIsUnderWay) {
  uploads_.Start(server_.channel(), Request("u", 9));
  server_.WaitForBegin();
  uploads_.Stop();
  EXPECT_TRUE(server_.WaitForEnds(1).empty());
}

}  // namespace
}  // namespace tandem::worker
