// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/cluster/local_cluster.h"
#include "cli/cluster/state_folder.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/number_text.h"
#include "cli/watch/follow.h"
#include "platform/clock.h"
#include "platform/counted_text.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"

namespace tandem::cli {
namespace {

// A cancelled job has ended long before, unless something hangs.
constexpr absl::Duration kCancelTimeout = absl::Seconds(15);

struct Shape {
  int workers = 1;
  int slots = 1;
};

// Chooses workers and slots for the job; fails if it would wait forever on what the options ask for.
absl::StatusOr<Shape> ShapeOf(const v1::JobSpec& resolved, const RunOptions& options) {
  const int ranks = std::max(1, resolved.parallelism().ranks());
  const int per_worker = resolved.resources().ranks_per_worker();
  Shape shape;
  shape.workers = options.workers > 0 ? options.workers
                  : per_worker > 0    ? (ranks + per_worker - 1) / per_worker
                                      : 1;
  shape.slots = options.slots > 0 ? options.slots : (ranks + shape.workers - 1) / shape.workers;
  const int used = per_worker > 0 ? std::min(per_worker, shape.slots) : shape.slots;
  // --slots counts CPU slots. The workers report their GPUs when they connect.
  if (resolved.resources().device() == v1::DEVICE_CUDA) {
    return shape;
  }
  if (static_cast<int64_t>(shape.workers) * used < ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job has ", ranks, " ranks, but ", WorkersText(shape.workers, used, 0),
                     per_worker > 0 && per_worker < shape.slots ? " (resources.ranks_per_worker)" : "",
                     " can only take ", static_cast<int64_t>(shape.workers) * used,
                     ", so it would wait forever; give more --workers or --slots, or omit both"));
  }
  return shape;
}

// Refuses a job for more GPUs than there are: no other worker will join, so it would wait forever.
absl::Status CheckGpus(int gpus, const v1::JobSpec& resolved) {
  if (resolved.resources().device() != v1::DEVICE_CUDA) {
    return absl::OkStatus();
  }
  const int ranks = resolved.parallelism().ranks();
  if (gpus >= ranks) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("resources.device is cuda and the job has ", platform::CountedText(ranks, "rank"),
                   ", but this machine offers ",
                   gpus == 0   ? "no GPU (it takes nvidia-smi, and tandem-trainer-cuda beside tandem-trainer)"
                   : gpus == 1 ? "one GPU"
                               : absl::StrCat(gpus, " GPUs"),
                   "; use fewer ranks, or resources.device: auto or cpu"));
}

// Ctrl-C: the first cancels the job, the second ends everything at once.
class RunControl {
 public:
  RunControl(Context& context, Interrupts& interrupts, LocalCluster& cluster, WatchState& state)
      : context_(context), interrupts_(interrupts), cluster_(cluster), state_(state) {}

  void SetJob(const std::string& id) { job_ = id; }

  absl::Status KeepGoing() {
    const int count = interrupts_.Count();
    const bool stop = count > 0 || context_.console.OutClosed();
    if (count > 1) {
      return absl::CancelledError("killed");
    }
    if (stop && !cancelled_.has_value()) {
      TANDEM_RETURN_IF_ERROR(Cancel());
    }
    if (cancelled_.has_value() && platform::SteadyClock().Now() - *cancelled_ > kCancelTimeout) {
      return absl::CancelledError("the job did not end after its cancellation");
    }
    return cluster_.Check();
  }

 private:
  absl::Status Cancel() {
    cancelled_ = platform::SteadyClock().Now();
    state_.notice = "cancelling; Ctrl-C again kills it";
    if (!context_.console.IsTerminal(Stream::kOut)) {
      Note(context_.console, "run: cancelling the job; Ctrl-C again kills it");
    }
    const absl::Status cancelled =
        cluster_.client().Cancel(job_, proto::ReasonCode("CancelledByUser")).status();
    if (cancelled.ok() || absl::IsFailedPrecondition(cancelled)) {
      return absl::OkStatus();  // FailedPrecondition: the job has just ended by itself, and the watch reports
                                // how
    }
    return absl::CancelledError(
        absl::StrCat("killed, since the job could not be cancelled: ", cancelled.message()));
  }

  Context& context_;
  Interrupts& interrupts_;
  LocalCluster& cluster_;
  WatchState& state_;
  std::string job_;
  std::optional<absl::Time> cancelled_;
};

}  // namespace

Outcome Run(Context& context, const RunOptions& options) {
  Console& console = context.console;
  TANDEM_ASSIGN_OR_RETURN(const JobFile file, LoadJobFile(context, options, /*files_are_here=*/true));
  TANDEM_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(file.resolved, options));
  Interrupts interrupts;
  TANDEM_ASSIGN_OR_RETURN(const std::string root, StateRoot(context.environment));
  TANDEM_ASSIGN_OR_RETURN(const std::string folder,
                          MakeRunFolder(root, context.clock.Now(), platform::SystemRandom().HexId(6)));
  // Tells other runs that the folder is in use.
  TANDEM_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Acquire(folder));
  TANDEM_ASSIGN_OR_RETURN(const SocketFolder socket, SocketFolder::Make(folder));
  Note(console,
       absl::StrCat("run: starting a controller and ", platform::CountedText(shape.workers, "worker"),
                    " on this machine; logs in ", folder));
  const absl::StatusOr<std::unique_ptr<LocalCluster>> cluster =
      LocalCluster::Start({.bin_dir = options.bin_dir.empty() ? context.own_folder : options.bin_dir,
                           .state = folder,
                           .address = socket.address(),
                           .metrics_listen = "off",
                           .workers = shape.workers,
                           .slots = shape.slots,
                           .trainer = options.trainer},
                          [&] { return interrupts.Count() > 0; });
  if (!cluster.ok()) {
    return interrupts.Count() > 0 ? Failure(kCancelled, "run: interrupted; nothing was submitted")
                                  : cluster.status();
  }
  Note(console, absl::StrCat("run: started ", (*cluster)->WorkersText()));
  if (const absl::Status gpus = CheckGpus((*cluster)->gpus(), file.resolved); !gpus.ok()) {
    (*cluster)->Stop(kStopGrace);
    return Failure(kFailed, absl::StrCat("run: ", gpus.message()));
  }

  WatchState state;
  state.ends_with_controller = true;
  RunControl control(context, interrupts, **cluster, state);
  const absl::StatusOr<v1::Job> job = SubmitSpec(context, (*cluster)->client(), file.spec, "");
  if (!job.ok()) {
    (*cluster)->Stop(kStopGrace);
    return interrupts.Count() > 0 ? Failure(kCancelled, "run: interrupted") : job.status();
  }
  control.SetJob(job->id());
  const std::unique_ptr<WatchView> view = MakeWatchView(console, /*json=*/options.format == Format::kJson);
  const bool norms = options.format != Format::kJson && console.IsTerminal(Stream::kOut);
  const absl::Status status =
      FollowJob((*cluster)->client(), {.job = job->id(), .norms = norms, .patient = true}, context.clock,
                [&] { return control.KeepGoing(); }, state, *view);
  const bool killed = interrupts.Count() > 1;
  (*cluster)->Stop(killed ? absl::ZeroDuration() : kStopGrace);
  if (console.OutClosed()) {
    return kOutputClosed;
  }
  if (!status.ok()) {
    return Failure(killed ? kCancelled : kFailed, absl::StrCat("run: ", status.message()));
  }
  return ExitCodeOf(state.job);
}

}  // namespace tandem::cli
