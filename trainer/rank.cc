#include "trainer/rank.h"

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "model/node.h"
#include "platform/host_name.h"
#include "platform/log.h"
#include "trainer/backend.h"
#include "trainer/checkpointing.h"
#include "trainer/executor.h"
#include "trainer/failure.h"
#include "trainer/job_start.h"
#include "trainer/metrics_file.h"
#include "trainer/rank_memory.h"

namespace tandem::trainer {
namespace {

constexpr char kNoDirectory[] = "the job saves no checkpoints: it has no checkpoint.directory";

using Communicators = std::vector<std::unique_ptr<comm::Communicator>>;

GroupCommunicator Find(const Communicators& communicators, const std::string& name, int ranks) {
  for (size_t i = 0; i < communicators.size(); ++i) {
    if (communicators[i]->name() == name) {
      if (communicators[i]->size() != ranks) {
        throw std::logic_error(
            absl::StrCat("group ", name, " has ", communicators[i]->size(), " ranks, the plan ", ranks));
      }
      return {communicators[i].get(), static_cast<int>(i)};
    }
  }
  throw std::logic_error("this rank is in no group " + name);
}

std::vector<ReportedItem> Items(const plan::JobPlan& plan) {
  std::vector<ReportedItem> items;
  for (const fsdp::Layout& layout : plan.layouts) {
    for (const fsdp::Item& item : layout.items) {
      items.push_back({.name = item.name, .shape = item.shape});
    }
  }
  return items;
}

std::vector<int64_t> ItemElements(const plan::JobPlan& plan) {
  std::vector<int64_t> elements;
  for (const fsdp::Layout& layout : plan.layouts) {
    for (const fsdp::Item& item : layout.items) {
      elements.push_back(item.range.size());
    }
  }
  return elements;
}

}  // namespace

class Rank::Impl {
 public:
  Impl(const plan::JobPlan& plan, const RankConfig& config, const Communicators& communicators,
       platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
       RankObserver& observer)
      : plan_(plan),
        config_(config),
        self_{.job = config.job,
              .name = plan.train.name,
              .attempt = config.attempt,
              .host = platform::HostName()},
        files_(files),
        requests_(requests),
        page_(page),
        observer_(observer),
        groups_{.gather = Find(communicators, "dp_cp_ag", plan.train.ranks),
                .reduce = Find(communicators, "dp_cp", plan.train.ranks),
                .norm = Find(communicators, "intra_dist_opt", plan.train.ranks)},
        report_(Find(communicators, "report", plan.train.ranks)),
        corpus_(std::make_shared<data::Corpus>(
            data::CorpusSource{.train = plan.train.data.train,
                               .validation = plan.train.data.validation,
                               .validation_fraction = plan.train.data.validation_fraction})),
        train_loader_(corpus_, data::Split::kTrain, plan.train.seed, plan.batch.sequence_length),
        nodes_(model::DecoderNodes(plan.model, plan.batch, plan.compute, backend.operations())),
        memory_(plan, config.rank, backend, config.executor.poison),
        arrays_(memory_.units()),
        executor_(plan, nodes_, memory_, groups_, requests, page, backend, config.executor) {
    if (Validates()) {
      validation_loader_.emplace(corpus_, data::Split::kValidation, plan.train.seed,
                                 plan.batch.sequence_length);
    }
  }

  RankOutcome Run() {
    try {
      const RankOutcome outcome = Train();
      if (lease_ != nullptr) {
        lease_->Release();
      }
      return outcome;
    } catch (...) {
      // The other ranks, and this one's reporter, must not wait for what will not come.
      for (const GroupCommunicator* group : {&groups_.gather, &groups_.reduce, &groups_.norm, &report_}) {
        group->communicator->Abort();
      }
      throw;
    }
  }

  std::exception_ptr Lose(const std::exception_ptr& error) { return executor_.Lose(error); }

  int64_t step() const { return step_; }
  RankMemory& memory() { return memory_; }

 private:
  RankOutcome Train() {
    SetPhase(Phase::kLoading);
    Load();
    StartReporter();
    observer_.OnReady({.program_digest = plan_.program_digest,
                       .layout_digest = plan_.layout_digest,
                       .data_digest = corpus_->digest(),
                       .resumed_step = step_,
                       .resumed_from = resumed_from_});
    SetPhase(Phase::kReady);
    Lap();

    while (step_ < plan_.train.steps) {
      const bool stop = Step();
      if (stop) {
        FlushReports();
        observer_.OnRequestsDone(requests_.Finish(), "");
        return RankOutcome::kStopped;
      }
    }
    FlushReports();
    observer_.OnRequestsDone(requests_.FinishAll(), HasDirectory() ? "" : kNoDirectory);
    SetPhase(Phase::kFinished);
    return RankOutcome::kFinished;
  }

  void SetPhase(Phase phase) { page_.phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed); }

  bool Validates() const {
    return plan_.train.validate_every_steps > 0 && plan_.train.validation_batches > 0;
  }

  bool HasDirectory() const { return !plan_.train.checkpoint.directory.empty(); }

  // Initial weights, or those of a checkpoint.
  void Load() {
    JobStart job = StartJob(files_, *report_.communicator,
                            {.self = self_,
                             .directory = plan_.train.checkpoint.directory,
                             .resume = plan_.train.checkpoint.resume,
                             .resume_from = config_.resume_from,
                             .layout_digest = plan_.layout_digest,
                             .seed = plan_.train.seed,
                             .data_digest = corpus_->digest()},
                            [this](const std::string& reason) {
                              executor_.Fail(std::make_exception_ptr(checkpoint::DirectoryLost(reason)));
                            });
    lease_ = std::move(job.lease);
    for (const CheckpointWarning& warning : job.warnings) {
      observer_.OnCheckpointWarning(warning);
    }
    const checkpoint::Found& start = job.from;
    resumed_from_ = start.path;
    if (start.path.empty()) {
      for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
        std::vector<fsdp::ItemInit> inits;
        for (const model::Parameter& parameter : plan_.units[unit].parameters) {
          inits.push_back(
              {.ones = parameter.init == model::Init::kOnes, .deviation = plan_.model.initializer_range});
        }
        memory_.units()[unit].Initialize(plan_.train.seed, inits);
      }
    } else {
      checkpoint::Load(files_, start.path, arrays_.shards());
      arrays_.ToDevice();
      step_ = start.info.step;
      if (config_.rank == 0) {
        platform::Log(platform::LogLevel::kInfo, "resumed",
                      {{"checkpoint", start.path}, {"step", absl::StrCat(step_)}});
      }
    }
    saved_step_ = step_;
  }

  void StartReporter() {
    if (config_.rank == 0) {
      if (HasDirectory()) {
        metrics_ = std::make_unique<MetricsFile>(files_, plan_.train.checkpoint.directory, step_);
      }
      if (plan_.train.parameter_norms) {
        observer_.OnItems(Items(plan_));
      }
    }
    reporter_ = std::make_unique<Reporter>(
        *report_.communicator, ItemElements(plan_),
        [this](const StepSummary& summary) {
          if (metrics_ != nullptr) {
            metrics_->Append(summary);
          }
          observer_.OnReport(summary);
        },
        [this](int64_t step, std::exception_ptr error) {
          executor_.Fail(std::make_exception_ptr(ReportError(std::move(error), step)));
        });
  }

  InstructionError ReportError(std::exception_ptr error, int64_t step) const {
    return InstructionError(std::move(error), step, "report", report_.communicator->name());
  }

  void FlushReports() {
    try {
      reporter_->Flush();
    } catch (...) {
      throw ReportError(std::current_exception(), step_);
    }
  }

  // One optimizer step and what follows from it. True: stop.
  bool Step() {
    const int64_t step = step_ + 1;
    page_.step.store(step, std::memory_order_relaxed);
    SetPhase(Phase::kStepping);
    RunResult result =
        executor_.Train({.step = step,
                         .learning_rate = plan::LearningRate(plan_.train.optimizer, step, plan_.train.steps),
                         .load =
                             [this, step](int round, int64_t* tokens) {
                               train_loader_.Fill(step, GlobalMicrobatch(round),
                                                  plan_.train.microbatches_per_rank * plan_.train.ranks,
                                                  plan_.batch.sequences, tokens);
                             },
                         .recording = profiles_.next()});
    if (result.recorded.has_value()) {
      result.recorded->timeline.rank = config_.rank;
      const ProfileQueue::Recorded recorded = profiles_.Advance();
      observer_.OnProfiledStep(recorded.id, *result.recorded, recorded.last);
    }
    if (const ProfileSteps profile = ProfileSteps::FromNumber(result.norm.profile); profile.id != 0) {
      requests_.ProfileAgreed(profile.id);
      profiles_.Add(profile);
    }
    StepRecord record{.step = step,
                      .grad_norm = result.norm.norm,
                      .learning_rate = plan::LearningRate(plan_.train.optimizer, step, plan_.train.steps),
                      .tokens = plan_.batch.sequences * plan_.batch.sequence_length *
                                plan_.train.microbatches_per_rank * plan_.train.ranks,
                      .seconds = Lap(),
                      .nonfinite = result.norm.nonfinite,
                      .losses = std::move(result.losses)};
    if (plan_.train.parameter_norms) {
      for (const fsdp::ShardedUnit& unit : memory_.units()) {
        const std::vector<fsdp::ItemNorms> norms = unit.norms();
        record.norms.insert(record.norms.end(), norms.begin(), norms.end());
      }
    }
    step_ = step;

    const bool last = step == plan_.train.steps;
    // The first tells where the curve starts.
    if (Validates() && (step == 1 || last || step % plan_.train.validate_every_steps == 0)) {
      record.validation_losses = Validate();
      record.validation_batches = plan_.train.validation_batches;
      Lap();
    }
    reporter_->Submit(std::move(record));

    const bool stop = (result.norm.requests & kRequestStop) != 0;
    const bool asked = (result.norm.requests & (kRequestStop | kRequestCheckpoint)) != 0;
    const int64_t every = plan_.train.checkpoint.every_steps;
    std::string save_error = HasDirectory() ? "" : kNoDirectory;
    if (HasDirectory() && (asked || last || (every > 0 && step % every == 0))) {
      save_error = Save(/*must_succeed=*/last || stop);
      Lap();
    }
    if (asked && !stop) {
      observer_.OnRequestsDone(requests_.Finish(), save_error);
    }
    return stop && !last;
  }

  // Seconds since the last call. The time between two steps belongs to the later one, validations and
  // checkpoints to none: the seconds of the steps add up to the wall time of training.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(lap_, now)).count();
  }

  // Of this rank's microbatches in the fixed windows of the validation text. Ranks that are left over in the
  // last round take windows again; those losses are not counted.
  std::vector<double> Validate() {
    return executor_
        .Validate({.step = step_,
                   .load =
                       [this](int round, int64_t* tokens) {
                         const int64_t batches = plan_.train.validation_batches;
                         validation_loader_->Fill(step_, GlobalMicrobatch(round) % batches, batches,
                                                  plan_.batch.sequences, tokens);
                       }})
        .losses;
  }

  int GlobalMicrobatch(int round) const { return round * plan_.train.ranks + config_.rank; }

  // A save that fails while there are more to come is told, and training goes on: a full disk may be
  // emptied, and the checkpoint before this one is still there. Returns the error.
  std::string Save(bool must_succeed) {
    if (saved_step_ == step_) {
      return "";
    }
    // The reports up to this step are in metrics.jsonl before the checkpoint that they belong to is there.
    FlushReports();
    SetPhase(Phase::kCheckpointing);
    arrays_.FromDevice();
    checkpoint::Saved saved;
    try {
      saved = checkpoint::Save(files_, *report_.communicator, plan_.train.checkpoint.directory,
                               plan_.train.checkpoint.keep, self_,
                               {.step = step_,
                                .attempt = config_.attempt,
                                .job = config_.job,
                                .spec_digest = config_.spec_digest,
                                .layout_digest = plan_.layout_digest,
                                .seed = plan_.train.seed,
                                .data_digest = corpus_->digest()},
                               arrays_.shards());
    } catch (const checkpoint::DirectoryLost&) {
      throw;
    } catch (const checkpoint::CheckpointError& error) {  // every rank gets one: all go on, or all stop
      Warn(CheckpointProblem::kSaveFailed, error.what());
      if (must_succeed) {
        throw;
      }
      return error.what();
    }
    saved_step_ = step_;
    if (config_.rank == 0) {
      observer_.OnCheckpoint(step_, saved);
    }
    if (!saved.not_removed.empty()) {
      Warn(CheckpointProblem::kNotRemoved, saved.not_removed);
    }
    return "";
  }

  // Of the save of this step.
  void Warn(CheckpointProblem problem, const std::string& message) {
    platform::Log(platform::LogLevel::kError, "a checkpoint went wrong",
                  {{"step", absl::StrCat(step_)}, {"error", message}});
    if (config_.rank == 0) {
      observer_.OnCheckpointWarning({.problem = problem, .step = step_, .path = "", .message = message});
    }
  }

  const plan::JobPlan& plan_;
  const RankConfig config_;
  const checkpoint::Owner self_;
  platform::Files& files_;
  RequestBox& requests_;
  link::SharedPage& page_;
  RankObserver& observer_;
  const ExecutorCommunicators groups_;
  const GroupCommunicator report_;

  std::chrono::steady_clock::time_point lap_;
  ProfileQueue profiles_;
  int64_t step_ = 0;        // done
  int64_t saved_step_ = 0;  // of the newest checkpoint of this run
  std::string resumed_from_;

  const std::shared_ptr<const data::Corpus> corpus_;
  const data::Loader train_loader_;
  std::optional<data::Loader> validation_loader_;
  const std::vector<std::unique_ptr<model::Node>> nodes_;
  RankMemory memory_;
  StateArrays arrays_;
  std::unique_ptr<MetricsFile> metrics_;
  Executor executor_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<checkpoint::Lease> lease_;  // of the checkpoint directory; rank 0
};

Rank::Rank(const plan::JobPlan& plan, const RankConfig& config, const Communicators& communicators,
           platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
           RankObserver& observer)
    : impl_(std::make_unique<Impl>(plan, config, communicators, files, requests, page, backend, observer)) {}

Rank::~Rank() = default;

RankOutcome Rank::Run() { return impl_->Run(); }

std::exception_ptr Rank::Lose(const std::exception_ptr& error) { return impl_->Lose(error); }

int64_t Rank::step() const { return impl_->step(); }

RankMemory& Rank::memory() { return impl_->memory(); }

}  // namespace tandem::trainer
