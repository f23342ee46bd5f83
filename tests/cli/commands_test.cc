// SPDX-License-Identifier: Apache-2.0
// What each command prints and ends with, against a controller that is a script.
#include <gmock/gmock.h>

#include "jobspec/jobspec.h"
#include "nlohmann/json.hpp"
#include "platform/build_info.h"
#include "proto/time.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/slow_door.h"

namespace tandem::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(CommandTest, UsageErrorsAreOneLineAndExitTwo) {
  EXPECT_EQ(Tandem({"drain", "worker", "a"}), kUsage);
  EXPECT_EQ(console_.err.substr(0, 50), "tandem: there is no command \"drain\"; commands: up ");
  EXPECT_EQ(console_.out, "");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"watch"},
                                             {"watch", "a", "b"},
                                             {"cancel", "a", "--now"},
                                             {"get", "jobs", "-o", "xml"},
                                             {"wait", "a", "--timeout", "10"},
                                             {"logs", "a", "--rank", "1", "--all"},
                                             {"submit"},
                                             {"submit", "-f", "a", "--wait", "--follow"},
                                             {"up", "--workers", "0"},
                                             {"profile", "a", "--base", "h100"},
                                             {"up", "--listen", "unix:/tmp/x"},
                                             {"--addr", "nowhere", "get", "jobs"},
                                             {"--addr", "unix:relative", "get", "jobs"},
                                             {"--addr", "unix:/" + std::string(200, 'x'), "get", "jobs"},
                                             {"--addr", "host:99999", "get", "jobs"}}) {
    EXPECT_EQ(Tandem(words), kUsage) << testing::PrintToString(words);
    EXPECT_EQ(std::count(console_.err.begin(), console_.err.end(), '\n'), 1) << console_.err;
    EXPECT_EQ(console_.out, "");
  }
}

TEST_F(CommandTest, UsageErrorsNameWhatIsAllowed) {
  for (const auto& [words, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"norms", "a", "--top", "0"},
            "norms: --top: \"0\" must be an integer ≥ 1; see `tandem norms --help`"},
           {{"logs", "a", "--rank", "x"},
            "logs: --rank: \"x\" must be an integer ≥ 0; see `tandem logs --help`"},
           {{"up", "--slots", "9999"},
            "up: --slots: Value 9999 not in range 1 to 1024; see `tandem up --help`"},
           {{"validate", "job.yaml"},
            "validate: -f FILE is missing; did you mean -f job.yaml?; see `tandem validate --help`"},
           {{"up", "--listen", "foo"},
            "up: --listen: \"foo\" is not an address; allowed: HOST:PORT with a port from 1 to 65535, as in "
            "127.0.0.1:7471"},
           {{"up", "--metrics-listen", "[::1:9464"},
            "up: --metrics-listen: \"[::1:9464\" is not an address; allowed: HOST:PORT with a port from 1 to "
            "65535, as in 127.0.0.1:9464, or off"},
           {{"get"},
            "get: its second word is missing or unknown; allowed: get jobs, get workers; see `tandem get "
            "--help`"},
           {{"get", "checkpoints"},
            "get: its second word is missing or unknown; allowed: get jobs, get workers; see `tandem get "
            "--help`"}}) {
    EXPECT_EQ(Tandem(words), kUsage);
    EXPECT_EQ(console_.err, "tandem: " + text + "\n");
  }
  EXPECT_EQ(Tandem({"--bogus"}), kUsage);
  EXPECT_EQ(console_.err.rfind("tandem: there is no option \"--bogus\" before a command; commands: up ", 0),
            0u)
      << console_.err;
}

TEST_F(CommandTest, HelpGoesToStandardOutput) {
  EXPECT_EQ(Tandem({"--version"}), kOk);
  EXPECT_EQ(console_.out, platform::BuildVersion() + "\n");
  EXPECT_EQ(Tandem({"--help"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("tandem run -f job.yaml"));
  EXPECT_EQ(Tandem({"get", "jobs", "--help"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("--output"));
  EXPECT_EQ(console_.err, "");
}

TEST_F(CommandTest, AbsentControllerIsExitSix) {
  server_->Stop();
  EXPECT_EQ(Tandem({"get", "jobs"}), kUnreachable);
  EXPECT_EQ(console_.err,
            "tandem: get jobs: no controller answers at " + server_->address() +
                " (No such file or directory); check TANDEM_ADDR, or that the controller runs there\n");
  EXPECT_EQ(Tandem({"--addr", server_->address(), "watch", "x"}), kUnreachable);
  EXPECT_THAT(console_.err, HasSubstr("check --addr"));
  environment_.tandem_addr.clear();
  EXPECT_EQ(Tandem({"wait", "x"}), kUnreachable);
  EXPECT_THAT(console_.err, HasSubstr("127.0.0.1:7471 (Connection refused); start one with `tandem up`"));
}

TEST_F(CommandTest, SlowControllerIsNotAbsent) {
  SlowDoor door(folder_ + "/slow", server_->address().substr(5), absl::Milliseconds(1500));
  server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 4)};
  EXPECT_EQ(Tandem({"--addr", "unix:" + folder_ + "/slow", "get", "jobs", "-o", "name"}), kOk)
      << console_.err;
  EXPECT_EQ(console_.out, "3f2a91c07be4\n");
}

TEST_F(CommandTest, AnUnknownJobIsExitThree) {
  for (const char* command : {"describe", "cancel", "norms"}) {
    EXPECT_EQ(Tandem({command, "x\x1b[2J"}), kNotFound);
    EXPECT_EQ(console_.err,
              absl::StrCat("tandem: ", command,
                           " x\\x1b[2J: no job x\\x1b[2J; `tandem get jobs` lists them (controller at ",
                           server_->address(), ")\n"));
  }
}

TEST_F(CommandTest, GetJobsListsEveryPage) {
  server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 4), SampleJob(v1::JOB_STATE_QUEUED, 1),
                   SampleJob(v1::JOB_STATE_FAILED, 7)};
  server_->jobs[0].set_last_step(134);
  server_->jobs[0].mutable_progress()->mutable_age()->set_nanos(200'000'000);
  server_->jobs[1].set_id("000000000001");
  server_->jobs[1].set_reason("NotEnoughSlots");
  EXPECT_EQ(Tandem({"get", "jobs"}), kOk);
  EXPECT_TRUE(server_->brief_asked);
  EXPECT_EQ(console_.out,
            "NAME     ID            STATE       STEP  RANKS   PROGRESS  AGE  REASON\n"
            "headers  3f2a91c07be4  RUNNING  134/200      2  0.2 s ago   2m\n"
            "headers  000000000001  QUEUED     0/200      2              2m  NotEnoughSlots\n"
            "headers  3f2a91c07be4  FAILED     0/200      2              2m\n");
  EXPECT_EQ(Tandem({"get", "jobs", "-o", "name"}), kOk);
  EXPECT_EQ(console_.out, "3f2a91c07be4\n000000000001\n3f2a91c07be4\n");
  const nlohmann::json jobs = Json({"get", "jobs"});
  EXPECT_FALSE(server_->brief_asked) << "all of it is printed";
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[0]["state"], "RUNNING");
  EXPECT_EQ(jobs[0]["last_step"], 134);
  EXPECT_EQ(jobs[0]["created"], "2024-05-01T12:00:00Z");
  EXPECT_EQ(console_.err, "");
}

TEST_F(CommandTest, GetJobsChoosesByStateAndReason) {
  const auto add = [&](const std::string& id, v1::JobState state, const std::string& reason) {
    v1::Job job = SampleJob(state, 1);
    job.set_id(id);
    job.set_reason(reason);
    server_->jobs.push_back(job);
  };
  add("a", v1::JOB_STATE_RUNNING, "Ready");
  add("b", v1::JOB_STATE_FAILED, "RankKilled");
  add("c", v1::JOB_STATE_FAILED, "OutOfMemory");
  add("d", v1::JOB_STATE_CANCELLED, "CancelledByUser");
  for (const auto& [words, ids] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--state", "FAILED"}, "b\nc\n"},
           {{"--state", "failed,cancelled"}, "b\nc\nd\n"},
           {{"--state", "RUNNING", "--state", "CANCELLED"}, "a\nd\n"},
           {{"--reason", "OutOfMemory"}, "c\n"},
           {{"--reason", "outofmemory,Ready"}, "a\nc\n"},
           {{"--state", "FAILED", "--reason", "RankKilled,Ready"}, "b\n"},
           {{"--state", "QUEUED"}, ""}}) {
    std::vector<std::string> line = {"get", "jobs", "-o", "name"};
    line.insert(line.end(), words.begin(), words.end());
    EXPECT_EQ(Tandem(line), kOk) << console_.err;
    EXPECT_EQ(console_.out, ids) << testing::PrintToString(words);
  }
  EXPECT_EQ(Tandem({"get", "jobs", "--reason", "Nothing"}), kOk);
  EXPECT_EQ(console_.err, "tandem: no job matches\n");
  EXPECT_EQ(Tandem({"get", "jobs", "--state", "DONE"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("DONE"));
  EXPECT_THAT(console_.err, HasSubstr("QUEUED,ADMITTED,STARTING,RUNNING,STOPPING"));
}

TEST_F(CommandTest, AnEmptyListIsNoData) {
  EXPECT_EQ(Tandem({"get", "workers"}), kOk);
  EXPECT_EQ(console_.out, "");
  EXPECT_EQ(console_.err, "tandem: there are no workers\n");
  EXPECT_EQ(Tandem({"get", "workers", "-o", "json"}), kOk);
  EXPECT_EQ(console_.out, "[]\n");
  EXPECT_EQ(console_.err, "");
}

TEST_F(CommandTest, GetWorkersSaysSinceWhenOneIsAway) {
  v1::Worker worker;
  worker.set_id("local-1");
  worker.set_hostname("box");
  worker.set_connected(true);
  worker.set_schedulable(true);
  worker.set_slots(2);
  worker.set_slots_in_use(1);
  worker.set_device(v1::DEVICE_CPU);
  server_->workers = {worker, worker};
  server_->workers[1].set_id("local-2");
  server_->workers[1].set_connected(false);
  server_->workers[1].set_schedulable(false);
  server_->workers[1].set_reason("NotConnected");
  *server_->workers[1].mutable_last_seen() = At(100);
  EXPECT_EQ(Tandem({"get", "workers"}), kOk);
  EXPECT_EQ(console_.out,
            "ID       HOST  CONNECTED  SLOTS  IN USE  DEVICE  REASON\n"
            "local-1  box   yes            2       1  cpu\n"
            "local-2  box   no, 34s        2       1  cpu     NotConnected\n");
  server_->workers[0].set_gpus_unused("nvidia-smi failed");
  EXPECT_EQ(Tandem({"get", "workers"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("cpu     no GPU offered: nvidia-smi failed\n"));
}

TEST_F(CommandTest, DescribeShowsEverything) {
  v1::Job job = SampleJob(v1::JOB_STATE_FAILED, 9);
  job.mutable_cause()->set_reason("RankKilled");
  job.mutable_cause()->set_rank(1);
  job.mutable_cause()->set_worker("local-2");
  job.mutable_cause()->set_signal(9);
  *job.mutable_attempts(0)->mutable_cause() = job.cause();
  *job.mutable_ended() = At(70);
  server_->jobs = {job};
  v1::Event event;
  *event.mutable_time() = At(60);
  event.set_actor("local-1");
  event.mutable_checkpoint()->set_step(50);
  event.mutable_checkpoint()->set_path("/data/runs/headers/step-50");
  event.mutable_checkpoint()->set_bytes(3 << 20);
  server_->events = {event};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  for (const char* line :
       {"name         headers\n", "state        FAILED\n",
        "cause        Rank 1 on worker local-2 was killed by signal 9 (SIGKILL).\n",
        "  ranks      0 on worker local-1\n", "  step 50  /data/runs/headers/step-50  3 MiB\n",
        "2024-05-01 12:01:00", "  training:\n    steps: 200\n", "    directory: /data/runs/headers\n"}) {
    EXPECT_THAT(console_.out, HasSubstr(line));
  }
  EXPECT_EQ(Json({"describe", "headers"})["cause"]["signal"], 9);
}

TEST_F(CommandTest, DescribeSaysThatTokensAreDealt) {
  server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 9)};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out, Not(HasSubstr("\nmeasures ")));
  server_->jobs[0].mutable_resolved()->mutable_debug()->set_balanced_routing(true);
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("\nmeasures     speed alone: debug.balanced_routing deals"));
}

TEST_F(CommandTest, DescribeSaysWhatAReasonMeans) {
  v1::Job job = SampleJob(v1::JOB_STATE_FAILED, 9);
  job.mutable_cause()->set_reason("WorkerDisk");
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out,
              HasSubstr("meaning      the disk of a worker is full, or fails; make room below"));
  server_->jobs[0].mutable_cause()->set_reason("OfANewerBuild");
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out, Not(HasSubstr("meaning")));
}

TEST_F(CommandTest, DescribeShowsTheTextAndSkippedSteps) {
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 50);
  job.set_last_step(50);
  job.set_skipped_steps(2);
  job.set_data("3 files; held out: b");
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("skipped      2 of 50 steps changed no weight (4.0 %)"));
  EXPECT_THAT(console_.out, HasSubstr("data         3 files; held out: b\n"));
}

TEST_F(CommandTest, DescribeShowsThePrefetchDistanceThatWasChosen) {
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 4);
  job.mutable_resolved()->mutable_parallelism()->mutable_fsdp()->set_prefetch(2);
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out, Not(HasSubstr("units ahead")));
  job.mutable_submitted()->mutable_parallelism()->mutable_fsdp()->set_prefetch(-1);
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out, testing::ContainsRegex("prefetch +2 units ahead, chosen when it was submitted"));
}

TEST_F(CommandTest, DescribeShowsTheGroupsThatTheControllerSends) {
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 9);
  const std::vector<std::pair<std::string, std::vector<int>>> groups = {{"dp_cp", {0, 1, 2, 3}},
                                                                        {"intra_dp_cp", {0, 1}},
                                                                        {"intra_dp_cp", {2, 3}},
                                                                        {"dp_cp_ag", {0, 1}},
                                                                        {"dp_cp_ag", {2, 3}}};
  for (size_t i = 0; i < groups.size(); ++i) {
    v1::GroupList& group = *job.add_groups();
    group.set_name(groups[i].first);
    group.mutable_ranks()->Add(groups[i].second.begin(), groups[i].second.end());
    if (i >= 3) {
      group.set_clone_of(static_cast<int>(i) - 2);
    }
  }
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out,
              HasSubstr("Process groups\n"
                        "NAME         GROUPS  SIZE  RANKS        FOR\n"
                        "dp_cp             1     4  {0-3}        dense gradients and shards\n"
                        "intra_dp_cp       2     2  {0 1} {2 3}  one replica of dense shards\n"
                        "dp_cp_ag          2     2  {0 1} {2 3}  gathers of dense parameters; a clone "
                        "of intra_dp_cp\n"));
  EXPECT_EQ(Json({"describe", "headers"})["groups"][4]["clone_of"], 2);
}

TEST_F(CommandTest, DescribeShowsTheLayoutOfARunnableJob) {
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 9);
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers", "--layout"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("this version refuses its spec"));
  jobspec::ReadResult read = jobspec::ReadFile(GoodJobFile());
  jobspec::Localize(read.spec);
  *job.mutable_resolved() = jobspec::Resolve(read.spec);
  server_->jobs = {job};
  EXPECT_EQ(Tandem({"describe", "headers", "--layout"}), kOk) << console_.err;
  EXPECT_THAT(console_.out, HasSubstr("Placement of dense units: zero3\n"));
  EXPECT_THAT(console_.out, HasSubstr("    model.embed_tokens.weight ["));
  EXPECT_EQ(Tandem({"describe", "headers", "--layout", "-o", "json"}), kUsage);
}

TEST_F(CommandTest, DescribeListsCheckpointsAndProblems) {
  v1::Job job = SampleJob(v1::JOB_STATE_RUNNING, 9);
  job.mutable_checkpoints()->set_saved(4);
  job.mutable_checkpoints()->set_failed(12);
  job.mutable_checkpoints()->set_failed_in_a_row(3);
  job.mutable_checkpoints()->mutable_last_failure()->set_step(60);
  job.mutable_checkpoints()->mutable_last_failure()->set_message("write /data: No space left on device");
  job.mutable_checkpoints()->add_resume()->set_message("step-5 does not verify; the job goes on from step 0");
  server_->jobs = {job};
  for (const int step : {10, 20, 30, 40}) {
    v1::Event& event = server_->events.emplace_back();
    event.mutable_checkpoint()->set_step(step);
    event.mutable_checkpoint()->set_path(absl::StrCat("/runs/step-", step));
    event.mutable_checkpoint()->set_bytes(3 << 20);
  }
  server_->events[2].mutable_checkpoint()->add_removed_steps(10);
  server_->events[3].mutable_checkpoint()->add_removed_steps(20);
  v1::Event& asked = server_->events.emplace_back();
  asked.set_seq(91);
  asked.set_actor("alice");
  asked.set_message("a checkpoint after the step that runs");
  *asked.mutable_time() = proto::ToProto(absl::FromUnixSeconds(1714564801));
  server_->jobs[0].mutable_checkpoints()->set_requested(91);
  server_->jobs[0].mutable_checkpoints()->set_answered(77);
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out,
              testing::ContainsRegex("  wanted     a checkpoint after the step that runs, by alice "
                                     "at 2024-05-01 [0-9:]*; not done yet\n"));
  server_->jobs[0].mutable_checkpoints()->set_answered(91);
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  const size_t begin = console_.out.find("Checkpoints\n");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(
      console_.out.substr(begin, console_.out.find("\nEvents") - begin),
      "Checkpoints\n"
      "  failing    12 of 16 failed, the last 3 in a row; step 60: write /data: No space left on device\n"
      "  resumed    step-5 does not verify; the job goes on from step 0\n"
      "  step 30  /runs/step-30  3 MiB\n"
      "  step 40  /runs/step-40  3 MiB\n");

  server_->jobs[0].mutable_checkpoints()->set_failed_in_a_row(0);
  EXPECT_EQ(Tandem({"describe", "headers"}), kOk);
  EXPECT_THAT(console_.out,
              HasSubstr("\n  failed     12 of 16 failed, the newest was saved; step 60: write /data: No"));
}

TEST_F(CommandTest, LogsPutTheLinesOfRanksTogether) {
  const auto chunk = [&](int rank, const std::string& data) {
    v1::LogChunk added;
    added.set_rank(rank);
    added.set_data(data);
    server_->log.push_back(added);
  };
  chunk(0, "one\ntw");
  chunk(1, "uno\n");
  chunk(0, "o\n\x1b[2J");
  EXPECT_EQ(Tandem({"logs", "headers", "--all"}), kOk);
  EXPECT_EQ(console_.out, "rank 0: one\nrank 1: uno\nrank 0: two\nrank 0: \x1b[2J\n");
  EXPECT_FALSE(server_->log_requests.back().has_rank());
  console_.terminal = true;
  EXPECT_EQ(Tandem({"logs", "headers", "--rank", "1", "--tail", "7", "-f"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("\\x1b[2J"));
  EXPECT_EQ(server_->log_requests.back().rank(), 1);
  EXPECT_EQ(server_->log_requests.back().tail_lines(), 7);
  EXPECT_TRUE(server_->log_requests.back().follow());
  server_->log[1].set_error("worker local-2 is away");
  EXPECT_EQ(Tandem({"logs", "headers", "--all"}), kFailed);
  EXPECT_EQ(console_.err, "tandem: logs headers: rank 1: worker local-2 is away\n");
}

TEST_F(CommandTest, EmptyLogIsNoFailure) {
  EXPECT_EQ(Tandem({"logs", "headers"}), kOk);
  EXPECT_EQ(console_.out, "");
  EXPECT_EQ(console_.err, "tandem: logs headers: rank 0 has written nothing\n");
  EXPECT_EQ(Tandem({"logs", "headers", "--all"}), kOk);
  EXPECT_EQ(console_.err, "tandem: logs headers: no rank has written anything\n");
}

TEST_F(CommandTest, CancelSaysNothingToAPipe) {
  server_->jobs = {SampleJob(v1::JOB_STATE_RUNNING, 4)};
  EXPECT_EQ(Tandem({"cancel", "headers"}), kOk);
  EXPECT_EQ(console_.out + console_.err, "");
  EXPECT_EQ(server_->cancelled[0].reason(), "CancelledByUser");
}

TEST_F(CommandTest, PlanShowsMemoryAndOnRequestTheProgram) {
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk) << console_.err;
  const size_t table = console_.out.size();
  EXPECT_GT(table, 100u);
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--program"}), kOk);
  EXPECT_GT(console_.out.size(), table);
  EXPECT_TRUE(Json({"plan", "-f", GoodJobFile()}).contains("memory"));
}

TEST_F(CommandTest, VersionWarnsOfABuildSkew) {
  EXPECT_EQ(Tandem({"version"}), kOk);
  EXPECT_EQ(console_.out, "client      " + platform::BuildVersion() + "\ncontroller  other at " +
                              server_->address() + "\n");
  EXPECT_THAT(console_.err, HasSubstr("different builds"));
  server_->build = platform::BuildVersion();
  EXPECT_EQ(Tandem({"version"}), kOk);
  EXPECT_EQ(console_.err, "");
  environment_.tandem_addr.clear();
  EXPECT_EQ(Tandem({"version"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("controller  none at 127.0.0.1:7471\n"));
  EXPECT_EQ(Tandem({"context", "set", "lab", "--addr", "unix:" + folder_ + "/none"}), kOk);
  EXPECT_EQ(Tandem({"version"}), kUnreachable) << "a controller that a context names must answer";
  EXPECT_THAT(console_.err, HasSubstr("version: no controller answers at unix:" + folder_ + "/none"));
}

}  // namespace
}  // namespace tandem::cli
