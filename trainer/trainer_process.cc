// SPDX-License-Identifier: Apache-2.0
#include "trainer/trainer_process.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "comm/communicator_factory.h"
#include "comm/communicators.h"
#include "comm/watchdog.h"
#include "jobspec/jobspec.h"
#include "link/channel.h"
#include "link/exit_code.h"
#include "link/shared_page.h"
#include "link/trainer_args.h"
#include "plan/job_plan.h"
#include "platform/build_info.h"
#include "platform/files.h"
#include "platform/log.h"
#include "platform/program_start.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"
#include "schedules/program/text.h"
#include "tandem/v1/trainer.pb.h"
#include "trainer/backend.h"
#include "trainer/channel_store.h"
#include "trainer/failure.h"
#include "trainer/memberships.h"
#include "trainer/outbox.h"
#include "trainer/rank.h"
#include "trainer/requests.h"

namespace tandem::trainer {
namespace {

using link::ExitCode;
using platform::Log;
using platform::LogLevel;

// For the creation of the groups and for each collective, from when the device has reached it. A peer that
// dies is noticed at once; this is for one that hangs, and has to leave room for a part of a checkpoint on a
// slow disk (checkpoint/work_together.h).
constexpr absl::Duration kCollectiveTimeout = absl::Minutes(10);

// A daemon that does not read must not keep a failing trainer.
constexpr absl::Duration kLastWords = absl::Seconds(1);

// How often ranks on GPUs hear of each other, and how long one that is done waits to be heard.
constexpr absl::Duration kHeartbeat = absl::Milliseconds(200);
constexpr absl::Duration kFarewell = absl::Seconds(2);

constexpr char kReportGroup[] = "report";

[[noreturn]] void Leave(int code) { _exit(code); }
[[noreturn]] void Leave(ExitCode code) { Leave(static_cast<int>(code)); }

int64_t BootNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class TrainerProcess {
 public:
  TrainerProcess(const link::TrainerArgs& args, MakeBackend make_backend)
      : channel_(args.control_fd), make_backend_(std::move(make_backend)) {
    absl::StatusOr<link::MappedPage> page = link::MappedPage::Attach(args.page_fd);
    if (!page.ok()) {
      throw std::runtime_error(std::string(page.status().message()));
    }
    page_.emplace(*std::move(page));
  }

  int Run() {
    Receive();
    outbox_ = std::make_unique<Outbox>(channel_);
    std::thread reader([this] { Read(); });
    std::thread orphan_watch([this] { WatchOrphanDeadline(); });
    orphan_watch.detach();  // ends with the process
    RankOutcome outcome = RankOutcome::kFinished;
    try {
      outcome = RunRank();
    } catch (...) {
      Fail(std::current_exception());
    }
    if (outcome == RankOutcome::kFinished) {
      v1::FromTrainer message;
      message.mutable_finished()->set_step(rank_->step());
      outbox_->Push(std::move(message));
    }
    // A frozen daemon gets its reports when it wakes up; one that is gone ends the process in Read.
    outbox_->Flush(absl::InfiniteDuration());
    if (outcome == RankOutcome::kStopped) {
      Leave(ExitCode::kPreempted);
    }
    leaving_ = true;
    channel_.Shutdown();
    reader.join();
    // Without joining: the streams are idle, and what the peers still wait for from us is in their sockets.
    Leave(ExitCode::kDone);
  }

 private:
  // The first frame.
  void Receive() {
    v1::ToTrainer first;
    const absl::StatusOr<bool> received = channel_.Receive(first);
    if (!received.ok() || !*received) {
      Leave(ExitCode::kStopped);
    }
    if (!first.has_start()) {
      throw std::logic_error("the first frame from the daemon is not a Start");
    }
    start_ = first.start();
    if (start_.build() != platform::BuildVersion()) {
      const Failure failure = Describe(std::make_exception_ptr(
          BuildMismatch(absl::StrCat("the daemon is of build ", start_.build(), ", its tandem-trainer of ",
                                     platform::BuildVersion(), "; install both from one build"))));
      SendLastFrame(failure.cause, failure.exit_code);
    }
    const v1::Assignment& assignment = start_.assignment();
    (*page_)->attempt = assignment.id().attempt();
    store_ = std::make_shared<ChannelStore>(channel_, assignment.id(), start_.rank());
  }

  // On its own thread: what the daemon says after Start.
  void Read() {
    while (true) {
      v1::ToTrainer message;
      const absl::StatusOr<bool> received = channel_.Receive(message);
      if (leaving_) {
        return;
      }
      if (!received.ok() || !*received) {
        if (!received.ok()) {
          Log(LogLevel::kError, "the daemon's channel broke",
              {{"error", std::string(received.status().message())}});
        }
        Leave(ExitCode::kStopped);
      }
      switch (message.item_case()) {
        case v1::ToTrainer::kValue:
          store_->Deliver(message.value());
          break;
        case v1::ToTrainer::kRequest:
          Request(message.request(), message.request_id());
          break;
        case v1::ToTrainer::kProfile:
          requests_.AddProfile({.id = message.profile().id(),
                                .steps = message.profile().steps(),
                                .serialized = message.profile().serialized()});
          break;
        case v1::ToTrainer::kStart:
        case v1::ToTrainer::ITEM_NOT_SET:
          Log(LogLevel::kWarning, "a running trainer does not accept this frame", {});
          break;
      }
    }
  }

  void Request(v1::Desired desired, uint64_t id) {
    switch (desired) {
      case v1::DESIRED_STOP_NOW:
        ReleaseDirectory();  // a disk that hangs: the daemon kills when the grace is over
        Leave(ExitCode::kStopped);
      case v1::DESIRED_STOP_AFTER_CHECKPOINT:
        requests_.Add(kRequestStop, id);
        break;
      case v1::DESIRED_CHECKPOINT_AND_GO_ON:
        requests_.Add(kRequestCheckpoint, id);
        break;
      default:
        break;  // RUN: it does
    }
  }

  // Before the process ends under a rank that runs.
  void ReleaseDirectory() {
    if (Rank* const rank = running_; rank != nullptr) {
      rank->ReleaseDirectory();
    }
  }

  // The daemon moves the deadline while it hears of a controller. CLOCK_BOOTTIME runs on while the machine
  // sleeps.
  void WatchOrphanDeadline() {
    while (true) {
      const int64_t deadline = (*page_)->orphan_deadline_boottime_ns.load(std::memory_order_relaxed);
      if (deadline > 0 && BootNanoseconds() >= deadline) {
        v1::Cause cause;
        cause.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
        cause.set_reason(proto::ReasonCode("ControllerLost"));
        cause.set_message("no controller has been heard of for longer than the orphan timeout");
        SendLastFrame(cause, static_cast<int>(ExitCode::kFenced));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
  }

  RankOutcome RunRank() {
    const v1::Assignment& assignment = start_.assignment();
    plan_ = plan::MakeJobPlan(assignment.resolved());
    RequireSameGroups(plan_.groups, ListedGroups());
    (*page_)->phase = v1::RANK_PHASE_CONNECTING;
    backend_ = make_backend_(proto::LowerName(assignment.resolved().resources().device()), Own().slot());
    Connect(MembershipsOf(plan_.groups, start_.rank(), plan_.group_options));
    rank_ = std::make_unique<Rank>(plan_,
                                   RankConfig{.rank = start_.rank(),
                                              .attempt = assignment.id().attempt(),
                                              .job = assignment.id().job_id(),
                                              .spec_digest = jobspec::Digest(assignment.resolved()),
                                              .resume_from = assignment.resume_from(),
                                              .exports = assignment.resolved().checkpoint().export_(),
                                              .tandem = platform::BesideThisProgram("tandem")},
                                   RankCommunicators{*communicators_, *factory_, *report_, save_.get()},
                                   platform::SystemFiles(), requests_, **page_, *backend_,
                                   [this](v1::FromTrainer message) { outbox_->Push(std::move(message)); });
    running_ = rank_.get();
    if (heartbeat_ == nullptr) {
      return rank_->Run();
    }
    std::vector<comm::Communicator*> watched = communicators_->all();
    watched.push_back(report_.get());
    if (save_ != nullptr) {
      watched.push_back(save_.get());
    }
    watch_ = std::make_unique<comm::Watchdog>(
        *heartbeat_, watched, kHeartbeat,
        [this](const std::exception_ptr& error) { FailHungCollective(error); });
    const RankOutcome outcome = rank_->Run();
    if (!watch_->Leave(kFarewell)) {
      Log(LogLevel::kWarning, "the other ranks could not be notified that this one is done", {});
    }
    return outcome;
  }

  const v1::RankStart& Own() const {
    for (const v1::RankStart& rank : start_.assignment().ranks()) {
      if (rank.rank() == start_.rank()) {
        return rank;
      }
    }
    throw std::logic_error(absl::StrCat("the assignment does not list rank ", start_.rank()));
  }

  // As the controller lists them.
  std::vector<parallel::Group> ListedGroups() const {
    std::vector<parallel::Group> listed;
    for (const v1::GroupList& group : start_.assignment().groups()) {
      listed.push_back({.name = group.name(),
                        .ranks = {group.ranks().begin(), group.ranks().end()},
                        .clone_of = group.has_clone_of() ? group.clone_of() : -1});
    }
    return listed;
  }

  // Joins the groups that the programs use, in the order that all ranks share, and the host's for reports and
  // saves.
  void Connect(const std::vector<comm::Membership>& memberships) {
    const comm::Rendezvous rendezvous{
        .store = store_, .data_address = start_.data_address(), .timeout = kCollectiveTimeout};
    factory_ = backend_->MakeCommunicatorFactory(rendezvous);
    communicators_ = std::make_unique<comm::Communicators>(*factory_, memberships, CommunicatorUsesOf(plan_));
    host_factory_ = comm::MakeGlooFactory(rendezvous);
    const auto report =
        std::find_if(memberships.begin(), memberships.end(),
                     [](const comm::Membership& group) { return group.group == kReportGroup; });
    if (report == memberships.end()) {
      throw std::logic_error(absl::StrCat("rank ", start_.rank(), " is in no group ", kReportGroup));
    }
    report_ = host_factory_->Make(*report, nullptr);
    const auto beside_report = [&](const std::string& name) {
      comm::Membership group = *report;
      group.group = name;
      group.prefix = name + "/";
      return host_factory_->Make(group, nullptr);
    };
    if (!plan_.train.checkpoint.directory.empty()) {
      save_ = beside_report("save");
    }
    if (backend_->needs_watchdog()) {
      heartbeat_ = beside_report("heartbeat");
    }
  }

  // On the watch's thread. The rank's own thread ends with the same error, unless it hangs as well: the host
  // blocks in a launch when the GPU has too much to do still.
  [[noreturn]] void FailHungCollective(const std::exception_ptr& error) {
    std::thread([this, error] {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(3 * kLastWords));
      Fail(error);  // the GPU's driver does not answer
    }).detach();
    const std::exception_ptr first = rank_->FailHungCollective(error);
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(kLastWords));
    Fail(first);
  }

  // Says why, and leaves. The streams are not joined. The thread that comes first reports.
  [[noreturn]] void Fail(const std::exception_ptr& error) {
    failing_.Lock();
    Failure failure = Describe(error);
    v1::Cause& cause = failure.cause;
    if (cause.step() == 0) {
      cause.set_step((*page_)->step);
    }
    Log(LogLevel::kError, cause.message(),
        {{"reason", cause.reason()},
         {"step", absl::StrCat(cause.step())},
         {"instruction", cause.instruction()},
         {"group", cause.group()}});
    outbox_->Flush(kLastWords / 4);
    SendLastFrame(cause, failure.exit_code);
  }

  // The last frame. A daemon that does not read it gets the exit code alone, and a disk that hangs keeps the
  // directory.
  [[noreturn]] void SendLastFrame(const v1::Cause& cause, int code) {
    v1::FromTrainer message;
    *message.mutable_failed() = cause;
    message.mutable_failed()->set_rank(start_.rank());
    *message.mutable_failed()->mutable_time() = proto::ToProto(absl::Now());
    std::thread([code] {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(kLastWords));
      Leave(code);
    }).detach();
    const absl::Status sent = channel_.Send(message);
    if (!sent.ok()) {
      Log(LogLevel::kWarning, "the cause could not be sent to the daemon",
          {{"error", std::string(sent.message())}});
    }
    ReleaseDirectory();
    Leave(code);
  }

  absl::Mutex failing_;  // never unlocked
  link::Channel channel_;
  const MakeBackend make_backend_;
  std::optional<link::MappedPage> page_;
  v1::Start start_;
  std::shared_ptr<ChannelStore> store_;
  RequestBox requests_;
  std::unique_ptr<Outbox> outbox_;
  std::atomic<bool> leaving_{false};

  // Members, not locals of RunRank: an exception must not destroy, and so join, what hangs.
  plan::JobPlan plan_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<comm::CommunicatorFactory> factory_;       // for tensors of the device
  std::unique_ptr<comm::CommunicatorFactory> host_factory_;  // for those of the host
  std::unique_ptr<comm::Communicators> communicators_;
  std::unique_ptr<comm::Communicator> report_;
  std::unique_ptr<comm::Communicator> save_;       // null: the job saves no checkpoints
  std::unique_ptr<comm::Communicator> heartbeat_;  // null: nothing to watch
  std::unique_ptr<Rank> rank_;
  std::atomic<Rank*> running_{nullptr};  // rank_, for other threads
  std::unique_ptr<comm::Watchdog> watch_;
};

}  // namespace

int TrainerMain(int argc, char** argv, const MakeBackend& make_backend) {
  platform::SetLogComponent("trainer");
  const absl::StatusOr<link::TrainerArgs> args = link::TrainerArgs::Parse(argc, argv);
  if (!args.ok()) {
    std::fprintf(stderr, "tandem-trainer: %s\n", std::string(args.status().message()).c_str());
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  // The daemon says when to end. Slurm sends this to every process of a step; the daemon then wants a
  // checkpoint.
  std::signal(SIGTERM, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != args->parent_pid) {  // it died before the line above
    return static_cast<int>(ExitCode::kStopped);
  }
  at::set_num_threads(1);  // a rank's parallelism is its streams
  platform::IgnoreLockCycles();
  try {
    return TrainerProcess(*args, make_backend).Run();
  } catch (const std::exception& error) {
    Log(LogLevel::kError, error.what());
    return 1;
  }
}

}  // namespace tandem::trainer
