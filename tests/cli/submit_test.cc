// SPDX-License-Identifier: Apache-2.0
// What `validate` and `submit` say of job files.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "absl/time/clock.h"
#include "jobspec/jobspec.h"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;

TEST_F(CommandTest, ValidateNamesViolationsWithPlaces) {
  const std::string good = GoodJobFile();
  EXPECT_EQ(Tandem({"validate", "-f", good}), kOk) << console_.err;
  EXPECT_EQ(console_.out, good + ": ok\n");
  const std::string bad = File("bad.yaml",
                               "name: headers\nmodel: {preset: llama-tiny}\n"
                               "data: {train: /nowhere, tokenizer: bytes}\n"
                               "training:\n  steps: 0\n  sequence_length: -1\n");
  EXPECT_EQ(Tandem({"validate", "-f", bad}), kInvalidSpec);
  EXPECT_EQ(console_.out, "");
  EXPECT_THAT(console_.err, HasSubstr(bad + ":5:"));
  EXPECT_THAT(console_.err, HasSubstr(bad + ":6:"));
  EXPECT_EQ(Tandem({"validate", "-f", folder_ + "/absent.yaml"}), kInvalidSpec);
  EXPECT_THAT(console_.err, HasSubstr("absent.yaml"));
}

TEST_F(CommandTest, DataHereIsChecked) {
  GoodJobFile();
  const std::string file = File("elsewhere.yaml",
                                "name: headers\nmodel: {preset: llama-tiny}\n"
                                "data: {train: /nowhere/at/all, tokenizer: bytes}\n"
                                "training: {steps: 20, sequence_length: 64, micro_batch_size: 2, "
                                "global_batch_size: 4}\nparallelism: {ranks: 2}\n");
  EXPECT_EQ(Tandem({"validate", "-f", file}), kInvalidSpec);  // the controller is on this machine
  EXPECT_THAT(console_.err, HasSubstr(file + ":3:"));
  environment_.tandem_addr = "cluster.example:7471";
  EXPECT_EQ(Tandem({"validate", "-f", file}), kOk);
  EXPECT_EQ(console_.err,
            "tandem: data.train: /nowhere/at/all is not on this machine; the workers will check it\n");
}

TEST_F(CommandTest, BadNameIsBlamedOnTheFlag) {
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile(), "--name", "Bad Name"}), kInvalidSpec);
  EXPECT_EQ(console_.err.rfind("--name: Bad Name is not allowed; allowed: ", 0), 0u) << console_.err;
}

TEST_F(CommandTest, TheResumeFlagOverridesTheFile) {
  server_->jobs = {SampleJob(v1::JOB_STATE_QUEUED, 1)};
  const std::string file = GoodJobFile();
  std::ofstream(file, std::ios::app) << "checkpoint: {directory: " << folder_ << "/run, resume: none}\n";
  EXPECT_EQ(Tandem({"submit", "-f", file, "--resume", "newest"}), kOk) << console_.err;
  ASSERT_EQ(server_->submitted.size(), 1u);
  EXPECT_EQ(server_->submitted[0].spec().checkpoint().resume(), "newest");
  EXPECT_EQ(Tandem({"submit", "-f", file, "--resume", "/nowhere/step-5"}), kInvalidSpec);
  EXPECT_EQ(console_.err.rfind("--resume: /nowhere/step-5 is not allowed; allowed: ", 0), 0u) << console_.err;
}

TEST_F(CommandTest, SubmitPrintsTheIdAndNothingElse) {
  server_->jobs = {SampleJob(v1::JOB_STATE_QUEUED, 1)};
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile(), "--name", "other", "--request-id", "r1"}), kOk)
      << console_.err;
  EXPECT_EQ(console_.out, "3f2a91c07be4\n");
  EXPECT_EQ(console_.err, "");
  ASSERT_EQ(server_->submitted.size(), 1u);
  EXPECT_EQ(server_->submitted[0].request_id(), "r1");
  EXPECT_EQ(server_->submitted[0].spec().name(), "other");
  EXPECT_EQ(server_->submitted[0].spec().data().train(), folder_ + "/*.txt");
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile()}), kOk);
  EXPECT_NE(server_->submitted[1].request_id(), "");
}

// Exit code 1 alone would have a script submit, and train, twice.
TEST_F(CommandTest, AnUnprintableIdSaysTheJobExists) {
  server_->jobs = {SampleJob(v1::JOB_STATE_QUEUED, 1)};
  console_.out_closed = true;
  Tandem({"submit", "-f", GoodJobFile()});
  EXPECT_EQ(
      console_.err,
      "tandem: job headers (3f2a91c07be4) is submitted all the same; `tandem cancel headers` ends it\n");
}

TEST_F(CommandTest, AnUnansweredSubmitSaysTheJobMayExist) {
  const std::string remedy =
      "the job may be there all the same: look at `tandem get jobs` before you submit it again\n";
  server_->submit_status = {grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time"};
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile()}), kTimeout);
  EXPECT_EQ(console_.err, "tandem: submit: the controller at " + server_->address() +
                              " did not answer in time; it may be overloaded or stopped, and " + remedy);
  server_->on_submit = [](const grpc::ServerContext& context) {
    ::kill(::getpid(), SIGINT);
    while (!context.IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  };
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile(), "--follow"}), kCancelled);
  EXPECT_EQ(console_.err, "tandem: submit: interrupted before the controller at " + server_->address() +
                              " answered; " + remedy);
}

TEST_F(CommandTest, TooLargeJobGetsAWarning) {
  server_->jobs = {SampleJob(v1::JOB_STATE_QUEUED, 1)};
  for (const bool connected : {true, false}) {
    v1::Worker& worker = server_->workers.emplace_back();
    worker.set_connected(connected);
    worker.set_slots(2);
  }
  const std::string file = GoodJobFile();
  EXPECT_EQ(Tandem({"submit", "-f", file}), kOk);
  EXPECT_EQ(console_.err, "");
  const std::string warning =
      "tandem: job headers needs 4 slots, and the workers have 2 for it: it waits until more workers join, "
      "and "
      "later jobs wait behind it; `tandem cancel headers` ends it\n";
  EXPECT_EQ(
      Tandem({"submit", "-f", file, "--set", "parallelism.ranks=4", "--set", "training.global_batch_size=8"}),
      kOk);
  EXPECT_EQ(console_.err, warning);
  EXPECT_EQ(console_.out, "3f2a91c07be4\n");
  server_->workers[1].set_connected(true);
  EXPECT_EQ(
      Tandem({"submit", "-f", file, "--set", "parallelism.ranks=4", "--set", "training.global_batch_size=8"}),
      kOk);
  EXPECT_EQ(console_.err, "");
  EXPECT_EQ(Tandem({"submit", "-f", file, "--set", "parallelism.ranks=4", "--set",
                    "training.global_batch_size=8", "--set", "resources.ranks_per_worker=1"}),
            kOk);
  EXPECT_EQ(console_.err, warning);
}

TEST_F(CommandTest, RunTakesTheOverridesOfSubmit) {
  const std::string file = GoodJobFile();
  EXPECT_EQ(Tandem({"run", "-f", file, "--name", "Bad Name"}), kInvalidSpec);
  EXPECT_EQ(console_.err.rfind("--name: Bad Name is not allowed; allowed: ", 0), 0u) << console_.err;
  std::ofstream(file, std::ios::app) << "checkpoint: {directory: " << folder_ << "/run, resume: none}\n";
  EXPECT_EQ(Tandem({"run", "-f", file, "--resume", "/nowhere/step-5"}), kInvalidSpec);
  EXPECT_EQ(console_.err.rfind("--resume: /nowhere/step-5 is not allowed; allowed: ", 0), 0u) << console_.err;
}

TEST_F(CommandTest, RefusedSubmitShowsTheControllersWords) {
  server_->submit_status =
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "training.steps: 0 is not allowed\nname: missing");
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile()}), kInvalidSpec);
  EXPECT_EQ(console_.err, "tandem: submit: the controller at " + server_->address() +
                              " refuses the job:\ntraining.steps: 0 is not allowed\nname: missing\n");
  server_->submit_status = grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "name: job 1 is called headers");
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile()}), kFailed);
  EXPECT_EQ(console_.err,
            "tandem: submit: name: job 1 is called headers (controller at " + server_->address() + ")\n");
  server_->submit_status = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not you");
  EXPECT_EQ(Tandem({"submit", "-f", GoodJobFile()}), kDenied);
  EXPECT_EQ(console_.out, "");
}

TEST_F(CommandTest, ABadFileIsRefusedBeforeDialling) {
  server_->Stop();
  const std::string bad = File("bad.yaml", "nmae: headers\n");
  EXPECT_EQ(Tandem({"submit", "-f", bad}), kInvalidSpec);
  EXPECT_THAT(console_.err, HasSubstr("nmae"));
}

}  // namespace
}  // namespace tandem::cli
