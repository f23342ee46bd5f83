// SPDX-License-Identifier: Apache-2.0
#include "trainer/training_state.h"

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "checkpoint/source_files.h"
#include "jobspec/model_function.h"
#include "jobspec/source_folders.h"
#include "jobspec/start_weights.h"
#include "jobspec/training_function.h"
#include "model/node.h"
#include "model/unit_parameters.h"
#include "plan/memory_plan.h"
#include "platform/host.h"
#include "platform/log.h"
#include "tandem/v1/trainer.pb.h"
#include "tandem/v1/workers.pb.h"
#include "trainer/backend.h"
#include "trainer/data_position.h"
#include "trainer/failure.h"
#include "trainer/job_start.h"
#include "trainer/progress.h"
#include "trainer/resume_checks.h"
#include "trainer/stage_memory.h"
#include "trainer/start_weights.h"

namespace tandem::trainer {
namespace {

std::map<std::string, fsdp::Shape> ShapesOf(const plan::JobPlan& plan) {
  std::map<std::string, fsdp::Shape> shapes;
  for (const plan::JobParameter& parameter : plan::Parameters(plan)) {
    shapes.emplace(parameter.name, parameter.shape);
  }
  return shapes;
}

fsdp::ParameterInit InitOf(const model::Parameter& parameter, const model::DecoderConfig& config) {
  using fsdp::Distribution;
  switch (parameter.init) {
    case model::Init::kNormal:
      return {.deviation = config.initializer_range};
    case model::Init::kZeros:
      return {};
    case model::Init::kOnes:
      return {.distribution = Distribution::kOnes};
    case model::Init::kUniform:
      // The weights [channels, 1, width] of a convolution, or the bias of a Mamba-2 mixer's.
      return {.distribution = Distribution::kUniform,
              .deviation =
                  1 / std::sqrt(static_cast<double>(parameter.shape.size() == 1 ? config.mamba.conv_width
                                                                                : parameter.shape.back()))};
    case model::Init::kTimeSteps:
      return {.distribution = Distribution::kTimeSteps};
    case model::Init::kDecayRates:
      return {.distribution = Distribution::kDecayRates};
  }
  throw std::logic_error("a parameter starts in no known way");
}

v1::StartedFrom StartedFromOf(v1::StartKind kind, const std::string& path, const std::string& digest) {
  v1::StartedFrom from;
  from.set_kind(kind);
  from.set_path(path);
  from.set_digest(digest);
  return from;
}

int64_t SequencesPerStep(const plan::JobPlan& plan) {
  return plan::TokensPerStep(plan) / plan.batch.sequence_length;
}

// All of it but its beginning.
checkpoint::DataSegment SegmentOf(const plan::JobPlan& plan, const data::Loader& text) {
  checkpoint::DataSegment segment{.global_batch_size = SequencesPerStep(plan),
                                  .sequence_length = plan.batch.sequence_length,
                                  .seed = plan.train.seed,
                                  .shuffles = plan.train.data.shuffles};
  const std::vector<std::string> digests = text.digests();
  for (size_t i = 0; i < digests.size(); ++i) {
    const data::Draws::Source& source = text.sources()[i];
    segment.sources.push_back(
        {.name = source.name, .digest = digests[i], .weight = source.weight, .windows = source.windows});
  }
  return segment;
}

std::string TrainingText(const plan::JobPlan& plan) {
  return jobspec::TrainingFunctionText(plan.resolved_training, plan.resolved_precision, plan.resolved_model);
}

}  // namespace

TrainingState::TrainingState(const plan::JobPlan& plan, const RankConfig& config,
                             RankCommunicators communicators, platform::Files& files, Backend& backend,
                             const data::Loader& text, SendToWorker send)
    : plan_(plan),
      config_(config),
      report_(communicators.report),
      save_(communicators.save),
      self_{.job = config.job,
            .name = plan.train.name,
            .attempt = config.attempt,
            .host = platform::HostName()},
      files_(files),
      device_(backend.device()),
      data_(SegmentOf(plan, text)),
      data_digest_(text.digest()),
      data_content_digest_(text.content_digest()),
      send_(std::move(send)),
      units_(MakeUnits(plan, config.rank, backend)),
      saved_(communicators.save == nullptr || plan.train.checkpoint.directory.empty()
                 ? SharedRoom{}
                 : ReserveTogether(communicators.report, backend.device(), self_.host,
                                   plan::HostBytesWanted(plan.stage, plan.device),
                                   plan.stage.host_bytes - plan.stage.saved_at)),
      memory_(plan.stage, backend.device(),
              communicators.factory.Reserve(backend.device(), plan.stage.arena_bytes),
              config.executor.fill_with_nan, saved_.region),
      states_(StatesOf(plan, memory_)),
      updated_states_(UpdatedStatesOf(plan, memory_)),
      arrays_(backend.device(), model::ElementKindOf(plan.precision.common.main), units_, states_,
              updated_states_, plan::TopologyOf(plan, config.rank).saves_states()) {}

TrainingState::Start TrainingState::Load(checkpoint::HeldLease& lease,
                                         const std::function<void(std::exception_ptr)>& lost,
                                         const std::function<void()>& moved) {
  JobStart job = StartJob(
      files_, report_,
      {.self = self_,
       .directory = plan_.train.checkpoint.directory,
       .resume = plan_.train.checkpoint.resume,
       .start_from = plan_.train.checkpoint.start_from,
       .weights = plan_.train.checkpoint.start_from.empty() ? checkpoint::WantedWeights()
                                                            : jobspec::WantedWeightsOf(plan_.model),
       .resume_from = config_.resume_from,
       .last_step = plan_.train.steps,
       .parameters = ShapesOf(plan_),
       .weights_dtype = checkpoint::SafetensorsDtype(model::ElementKindOf(plan_.precision.common.main)),
       .model = plan_.resolved_model,
       .training = TrainingText(plan_),
       .data = data_,
       .data_digest = data_digest_,
       .data_content_digest = data_content_digest_,
       .states = UpdatedStateNames(plan_)},
      lease,
      {.lost =
           [lost](const std::string& reason) {
             lost(std::make_exception_ptr(checkpoint::DirectoryLost(reason)));
           },
       .moved = moved});
  folder_ = std::move(job.folder);
  whole_ = std::move(job.whole);
  for (const v1::CheckpointWarning& warning : job.warnings) {
    Send(warning);
  }
  Start start;
  if (!job.from.path.empty()) {
    start.from = StartedFromOf(v1::START_KIND_CHECKPOINT, job.from.path, job.from.digest);
    origin_ = job.from.info.origin;
    Resume(job.from, moved);
    ReplaceSourceOfOther(job.from.path);
  } else if (job.weights) {
    origin_ = job.weights->origin;
    start.from = StartedFromOf(v1::START_KIND_WEIGHTS, origin_->path, origin_->digest);
    StartFrom(*job.weights, moved);
  } else {
    start.from = StartedFromOf(v1::START_KIND_SCRATCH, "", "");
    Initialize();
    ReplaceSource("", "");
  }
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].Publish(states_[unit]);
  }
  if (plan_.train.canaries) {
    canaries_ = std::make_unique<Canaries>(plan_, config_.rank, memory_, device_);
    canaries_->Plant();
  }
  segments_ = ContinueData(job.from.info, data_).segments;
  if (memory_.saves()) {
    copies_ =
        std::make_unique<checkpoint::ShardCopies>(device_, arrays_.owned_shards(), SavedOf(plan_, memory_));
    thread_ = std::make_unique<TaskThread>("save", lost);
  }
  if (config_.rank == 0 && config_.exports.every_steps() > 0) {
    exports_ = std::make_unique<Exports>(
        config_.exports, config_.tandem, [this](int64_t step, const std::string& message) {
          platform::Log(platform::LogLevel::kError, "a checkpoint could not be exported",
                        {{"step", absl::StrCat(step)}, {"error", message}});
          Send(WarningOf(v1::CHECKPOINT_PROBLEM_UNSPECIFIED, step, "",
                         absl::StrCat("step ", step, " is not exported: ", message)));
        });
  }
  start.data = segments_.back();
  start.is_own = job.from.info.job == config_.job;
  start.info = std::move(job.from.info);
  return start;
}

void TrainingState::Initialize() {
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    std::vector<fsdp::ParameterInit> inits;
    for (const model::Parameter& parameter : plan_.units[unit].parameters) {
      inits.push_back(InitOf(parameter, plan_.model));
    }
    units_[unit].Initialize(plan_.train.seed, inits, states_[unit]);
  }
}

// Moments are zeros still, as all persistent memory is at the start.
void TrainingState::StartFrom(const StartWeights& start, const std::function<void()>& moved) {
  LoadStartWeights(files_, report_, start, arrays_.shards(),
                   ShownProgress(config_.rank == 0, "the ranks load weights", "bytes", moved));
  arrays_.Loaded();
  const std::string& path = start.origin.path;
  ReplaceSource(jobspec::kStartFrom, path);
  if (config_.rank == 0) {
    platform::Log(platform::LogLevel::kInfo, "started from weights",
                  {{"folder", path}, {"digest", start.origin.digest}});
    if (const std::vector<std::string>& names = start.weights.left_out; !names.empty()) {
      platform::Log(platform::LogLevel::kInfo, "left out weights of layers that predict further tokens",
                    {{"folder", path}, {"tensors", checkpoint::AtMostNames(names)}});
    }
    for (const jobspec::DataText& text : plan_.train.data.train) {
      const std::string difference = start.is_step ? "" : TokenizerDifference(files_, text, path);
      if (!difference.empty()) {
        Send(WarningOf(v1::CHECKPOINT_PROBLEM_OTHER_DATA, 0, path, difference));
        break;
      }
    }
  }
}

// Collective. What the folder of the weights lacks may lie beside the tokenizer that a text was prepared
// with.
void TrainingState::ReplaceSource(const std::string& field, const std::string& weights) {
  const std::string& directory = plan_.train.checkpoint.directory;
  if (directory.empty()) {
    return;
  }
  OnRankZero(report_, [&] {
    const absl::StatusOr<std::vector<std::string>> left_out = checkpoint::ReplaceSource(
        files_, jobspec::SourceFolders(files_, plan_.train.data.train, field, weights), directory);
    ThrowIfUnwritable("rank 0 cannot write there", left_out.status());
    for (const std::string& reason : *left_out) {
      platform::Log(platform::LogLevel::kWarning,
                    "a file that goes with the weights cannot be copied, and exports will lack it",
                    {{"directory", directory}, {"error", reason}});
    }
    return "";
  });
}

// Collective. A step of this job's own directory has it beside itself already.
void TrainingState::ReplaceSourceOfOther(const std::string& step) {
  const std::string& directory = plan_.train.checkpoint.directory;
  const bool is_other =
      !directory.empty() && OnRankZero(report_, [&] {
                              const auto own = files_.IdOfFolder(directory);
                              const auto other = files_.IdOfFolder(step + "/..");
                              return own.ok() && other.ok() && *own == *other ? "" : "other";
                            }) == "other";
  if (is_other) {
    ReplaceSource("checkpoint.resume", step);
  }
}

void TrainingState::Resume(const checkpoint::Found& start, const std::function<void()>& moved) {
  checkpoint::Load(files_, report_, start.path, arrays_.shards(),
                   ShownProgress(config_.rank == 0, "the ranks load a checkpoint", "bytes", moved));
  arrays_.Loaded();
  if (config_.rank == 0) {
    platform::Log(platform::LogLevel::kInfo, "resumed",
                  {{"checkpoint", start.path}, {"step", absl::StrCat(start.info.step)}});
  }
}

void TrainingState::CheckCanaries(int64_t step) const {
  if (canaries_ == nullptr) {
    return;
  }
  try {
    canaries_->Check();
  } catch (const std::logic_error&) {
    throw InstructionError(std::current_exception(), step, /*instruction=*/"", /*group=*/"");
  }
}

void TrainingState::WarnOfStandstills() const {
  if (saved_.refused.empty() || config_.rank != 0) {
    return;
  }
  const std::string message =
      absl::StrCat("training stands still while checkpoints are written: ", saved_.refused);
  platform::Log(platform::LogLevel::kWarning, message);
  Send(WarningOf(v1::CHECKPOINT_PROBLEM_UNSPECIFIED, 0, "", message));
}

std::string TrainingState::Save(const Saving& saving, bool is_final) {
  return Write(report_, saving, arrays_.owned_shards(), is_final);
}

void TrainingState::BeginSave(const Saving& saving) {
  thread_->Begin(saving.step, [this, saving] {
    try {
      return Write(*save_, saving, copies_->shards(), /*is_final=*/false);
    } catch (const comm::CommError&) {
      throw InstructionError(std::current_exception(), saving.step, "save", save_->name());
    }
  });
}

TaskThread::Ended TrainingState::AwaitSave(int64_t step) {
  const absl::Time begun = config_.clock->Now();
  TaskThread::Ended ended = thread_->Await();
  const double waited = absl::ToDoubleSeconds(config_.clock->Now() - begun);
  if (waited < 2 * longest_wait_ || step == ended.step) {
    return ended;
  }
  longest_wait_ = waited;
  const std::string message = absl::StrFormat(
      "step %d waited %.0f s for the end of the save of step %d; save less often, or to a faster disk", step,
      waited, ended.step);
  platform::Log(platform::LogLevel::kWarning, message);
  if (config_.rank == 0) {
    Send(WarningOf(v1::CHECKPOINT_PROBLEM_UNSPECIFIED, step, "", message));
  }
  return ended;
}

// A step that is not in whole_ does not count for `keep`, and stays.
void TrainingState::SpareExports() {
  if (exports_ == nullptr) {
    return;
  }
  whole_.merge(spared_);
  spared_ = exports_->Pending();
  for (const int64_t step : spared_) {
    whole_.erase(step);
  }
}

std::string TrainingState::Write(comm::Communicator& comm, const Saving& saving,
                                 const std::vector<checkpoint::Shard>& shards, bool is_final) {
  const int64_t step = saving.step;
  const auto committed = [&](const checkpoint::Saved& now) {
    Send(now, saving);
    if (exports_ != nullptr) {
      exports_->Committed(step, now.path);
    }
  };
  SpareExports();
  checkpoint::Saved saved;
  try {
    saved = checkpoint::Save(files_, comm, folder_, plan_.train.checkpoint.keep, self_,
                             {.step = step,
                              .attempt = config_.attempt,
                              .job = config_.job,
                              .spec_digest = config_.spec_digest,
                              .parameters_digest = plan_.parameters_digest,
                              .seed = plan_.train.seed,
                              .data_digest = data_digest_,
                              .data_content_digest = data_content_digest_,
                              .model = jobspec::ModelFunctionText(plan_.resolved_model),
                              .training = TrainingText(plan_),
                              .global_batch_size = SequencesPerStep(plan_),
                              .sequence_length = plan_.batch.sequence_length,
                              .data = SegmentsUpTo(segments_, saving.taken),
                              .skipped_steps = saving.skipped,
                              .norms = saving.norms,
                              .origin = origin_,
                              .pending_report = saving.pending_report},
                             shards, whole_, committed);
  } catch (const checkpoint::DirectoryLost&) {
    throw;
  } catch (const checkpoint::CheckpointError& error) {  // every rank gets one: all go on, or all stop
    Warn(v1::CHECKPOINT_PROBLEM_SAVE_FAILED, step, error.what());
    if (is_final) {
      throw;
    }
    return error.what();
  }
  // Every save tries again and fails again; one warning of each says enough.
  std::vector<std::string> news;
  for (const std::string& reason : saved.not_removed) {
    if (not_removed_.insert(reason).second) {
      news.push_back(reason);
    }
  }
  if (!news.empty()) {
    Warn(v1::CHECKPOINT_PROBLEM_NOT_REMOVED, step, absl::StrJoin(news, "; "));
  }
  return "";
}

void TrainingState::Warn(v1::CheckpointProblem problem, int64_t step, const std::string& message) const {
  const bool saved = problem == v1::CHECKPOINT_PROBLEM_NOT_REMOVED;
  platform::Log(saved ? platform::LogLevel::kWarning : platform::LogLevel::kError,
                saved ? "older checkpoints could not be removed" : "a checkpoint could not be saved",
                {{"step", absl::StrCat(step)}, {"error", message}});
  if (config_.rank == 0) {
    Send(WarningOf(problem, step, "", message));
  }
}

void TrainingState::Send(const v1::CheckpointWarning& warning) const {
  v1::FromTrainer message;
  *message.mutable_checkpoint_warning() = warning;
  send_(std::move(message));
}

void TrainingState::Send(const checkpoint::Saved& saved, const Saving& saving) const {
  v1::FromTrainer message;
  v1::CheckpointCommitted& committed = *message.mutable_checkpoint();
  committed.set_step(saving.step);
  committed.set_path(saved.path);
  committed.set_bytes(saved.bytes);
  committed.set_manifest_digest(saved.manifest_digest);
  committed.set_seconds(saved.seconds);
  if (saving.stall.has_value()) {
    committed.set_stall_seconds(*saving.stall);
  }
  committed.mutable_removed_steps()->Add(saved.removed_steps.begin(), saved.removed_steps.end());
  send_(std::move(message));
}

}  // namespace tandem::trainer
