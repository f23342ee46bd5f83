// SPDX-License-Identifier: Apache-2.0
#include "trainer/rank.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/work_together.h"
#include "device/device.h"
#include "model/node.h"
#include "ops/operations.h"
#include "plan/prediction.h"
#include "platform/log.h"
#include "tandem/v1/workers.pb.h"
#include "trainer/backend.h"
#include "trainer/executor.h"
#include "trainer/failure.h"
#include "trainer/progress.h"
#include "trainer/rank_saves.h"
#include "trainer/rank_text.h"
#include "trainer/requests.h"
#include "trainer/run_sequence.h"
#include "trainer/say_ready.h"
#include "trainer/spikes.h"
#include "trainer/step_reports.h"
#include "trainer/training_state.h"

namespace tandem::trainer {
namespace {

constexpr int kMostWithoutTargets = 3;     // steps in a row
constexpr int64_t kMostSpikesInARow = 10;  // that are skipped

SequenceOptions Sequence(const plan::JobPlan& plan, const TrainingState::Start& start, bool saves_beside) {
  const plan::TrainConfig& train = plan.train;
  return {.first_step = start.info.step,
          .validates_first = !start.info.pending_report.empty(),
          .last_step = train.steps,
          .validate_every = Validates(train) ? train.validate_every_steps : 0,
          .checkpoint_every = train.checkpoint.every_steps,
          .has_directory = !train.checkpoint.directory.empty(),
          .saves_beside = saves_beside};
}

}  // namespace

class Rank::Impl {
 public:
  Impl(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
       platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
       SendToWorker send)
      : plan_(plan),
        config_(config),
        communicators_(communicators),
        files_(files),
        requests_(requests),
        page_(page),
        send_(std::move(send)),
        device_(backend.device()),
        text_(plan, config.rank),
        kernels_digest_(backend.operations().kernels_digest()),
        nodes_(OfStage(plan, plan.origin.nodes,
                       config.make_nodes ? config.make_nodes(backend.operations())
                                         : model::DecoderNodes(plan.model, plan.batch, plan.precision,
                                                               backend.operations()))),
        state_(plan, config_, communicators, files, backend, text_.train(), send_),
        executor_(plan, nodes_, state_.units(), state_.memory(), communicators.programs, page, backend,
                  config.executor) {
    for (const std::string& refused : communicators.programs.RegisterWindows(state_.memory().region())) {
      platform::Log(platform::LogLevel::kWarning, "memory is not registered with a communicator",
                    {{"reason", refused}});
    }
  }

  ~Impl() { state_.EndSaves(); }  // they use what is destroyed before it
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  RankOutcome Run() {
    try {
      const RankOutcome outcome = Train();
      ReleaseDirectory();
      return outcome;
    } catch (...) {
      // The other ranks, and this one's reporter, must not wait for what will not come.
      communicators_.programs.Abort();
      communicators_.report.Abort();
      if (communicators_.save != nullptr) {
        communicators_.save->Abort();
      }
      throw;
    }
  }

  std::exception_ptr FailHungCollective(const std::exception_ptr& error) {
    return executor_.FailHungCollective(error);
  }

  void ReleaseDirectory() { lease_.Release(); }

  int64_t step() const { return sequence_.has_value() ? sequence_->step() : 0; }
  const std::vector<fsdp::UnitShard>& units() const { return state_.units(); }
  const fsdp::StateMemory& StateOf(size_t unit) const { return state_.states().at(unit); }
  device::Memory arena() const { return state_.memory().arena(); }

 private:
  RankOutcome Train() {
    SetPhase(v1::RANK_PHASE_LOADING);
    const TrainingState::Start start = state_.Load(
        lease_, [this](const std::exception_ptr& error) { executor_.Fail(error); },
        [this] { Progress(page_, /*looks=*/false).Moved(); });
    std::vector<int64_t> taken;
    for (const checkpoint::TextPosition& text : start.data.sources) {
      taken.push_back(text.first);
    }
    text_.train().GoOn(start.data.from_step, std::move(taken));
    device_.Synchronize();  // the streams of the executor wait for no other
    sequence_.emplace(Sequence(plan_, start, state_.saves_beside()));
    updates_ = AppliedUpdates(start.info.step, start.info.skipped_steps);
    norms_ = NormWindow(start.info.norms);
    updates_of_others_ = start.is_own ? 0 : updates_.updates();
    reports_.emplace(files_, communicators_.report, plan_, plan::SecondsAtPeakOf(plan_, device_.name()),
                     start.info.step, start.info.pending_report, state_.self(), send_,
                     [this](const std::exception_ptr& error) { executor_.Fail(error); });
    saves_.emplace(!plan_.train.checkpoint.directory.empty(), state_, *sequence_, *reports_, requests_, page_,
                   send_);
    SayReady({.plan = plan_,
              .start = start,
              .text = text_,
              .kernels_digest = kernels_digest_,
              .memory = device_.memory_use(),
              .is_first = communicators_.report.rank() == 0},
             send_);
    state_.WarnOfStandstills();
    SetPhase(v1::RANK_PHASE_READY);
    Lap();

    while (true) {
      if (executor_.in_flight() == 2) {
        Await();
      }
      if (nonfinite_step_ > 0) {
        StopOnNonfinite();
      }
      if (without_targets_ >= kMostWithoutTargets) {
        FailWithoutTargets();
      }
      if (last_of_spikes_ > 0) {
        FailOfSpikes();
      }
      const RunSequence::Next next = sequence_->Decide(executor_.in_flight());
      switch (next.action) {
        case RunSequence::Action::kIssue:
          if (next.run.kind == RunKind::kTrainSave) {
            saves_->MakeWay(next.run.applied);
            Lap();
          }
          Issue(next.run);
          break;
        case RunSequence::Action::kDrain:
          Drain();
          break;
        case RunSequence::Action::kValidate:
          Validate();
          break;
        case RunSequence::Action::kSave:
          saves_->Save(SavingOf(step()));
          Lap();
          break;
        case RunSequence::Action::kAnswer:
          if (saves_->AnswerRequests()) {
            sequence_->Answered();
          }
          break;
        case RunSequence::Action::kStop:
          if (!saves_->End(step())) {
            break;
          }
          reports_->Submit();
          reports_->Flush();
          if (state_.exports() != nullptr) {
            state_.exports()->End("the job was stopped before");
          }
          // The first rank that leaves ends the job, and with it the others: none does before rank 0 has
          // removed the checkpoints that make way for the newest, and has reported that.
          checkpoint::ExchangeTexts(communicators_.report, "");
          saves_->AnswerStopped();
          return RankOutcome::kStopped;
        case RunSequence::Action::kFinish:
          if (!saves_->End(step())) {
            break;
          }
          reports_->Submit();
          reports_->Flush();
          if (first_skipped_ > 0 && updates_.updates() == updates_of_others_) {
            FailUntrained(start.info.step);
          }
          if (config_.exports.has_every_steps()) {
            SetPhase(v1::RANK_PHASE_CHECKPOINTING);
            FinishExports(communicators_.report, state_.exports(),
                          [this] { Progress(page_, /*looks=*/false).Moved(); });
          }
          saves_->AnswerAll();
          SetPhase(v1::RANK_PHASE_FINISHED);
          return RankOutcome::kFinished;
      }
    }
  }

  // Of the state after a step.
  TrainingState::Saving SavingOf(int64_t step) const {
    return {.step = step,
            .skipped = updates_.skipped(),
            .norms = norms_.norms(),
            .taken = text_.TakenAfter(step)};
  }

  void SetPhase(v1::RankPhase phase) { page_.phase.store(phase, std::memory_order_relaxed); }

  void Issue(const trainer::Run& run) {
    if (run.kind == RunKind::kBegin) {
      reports_->Submit();
    }
    RunRequest request{.run = run,
                       .after_wait = run.kind == RunKind::kTrainSave && saves_->wait_seconds() > 1e-3};
    if (run.applied > 0) {
      request.update = updates_.UpdateOf(run.applied);
      request.learning_rate =
          plan::LearningRate(plan_.train.optimizer.schedule, run.applied, plan_.train.steps);
    }
    if (run.computed > 0) {
      request.requests = requests_.Take();
      request.profile = requests_.WantedProfile();
      request.norm_limit = MaySkipSpike(run.computed) ? norms_.LimitOf(run.computed).value_or(0) : 0;
    }
    SetPhase(v1::RANK_PHASE_STEPPING);
    if (executor_.in_flight() == 0) {
      idle_seconds_ = Lap();
    }
    executor_.Issue(request, [this, step = run.computed](int round, int64_t* tokens) {
      text_.LoadStep(step, round, tokens);
    });
    sequence_->Issued(run);
  }

  // The oldest run in flight ends: the step that it applied is complete, the one that it computed has its
  // losses.
  void Await() {
    RunRecord record = executor_.Await();
    state_.CheckCanaries(std::max(record.run.applied, record.run.computed));
    if (record.run.applied > 0) {
      reports_->Applied(record);
      if (record.run.computed > 0) {
        reports_->Submit();
        // Where the job is to stop, nothing is saved of steps that are not to be applied.
        if (record.run.kind == RunKind::kTrainSave && nonfinite_step_ == 0) {
          saves_->Begin(SavingOf(record.run.applied));
        }
      } else {
        // An update of its own is time of its step, whatever follows.
        reports_->AddSeconds(record.seconds + std::exchange(idle_seconds_, 0));
      }
    }
    if (record.run.computed == 0) {
      Lap();
      return;
    }
    if (std::optional<v1::StepTimeline> recorded = executor_.TakeRecorded(); recorded.has_value()) {
      recorded->set_rank(config_.rank);
      const ProfileQueue::Recorded of = sequence_->Recorded();
      v1::FromTrainer message;
      message.mutable_profiled()->set_id(of.id);
      *message.mutable_profiled()->mutable_timeline() = *std::move(recorded);
      message.mutable_profiled()->set_last(of.last);
      send_(std::move(message));
    }
    updates_.Computed(record.run.computed, record.outcome.applied);
    const bool has_targets = record.outcome.divisor > 0;
    without_targets_ = has_targets ? 0 : without_targets_ + 1;
    const bool is_finite = std::isfinite(record.outcome.norm);
    if (!is_finite && first_skipped_ == 0) {
      first_skipped_ = record.run.computed;
    }
    if (!is_finite && has_targets && plan_.train.stop_on_nonfinite && nonfinite_step_ == 0) {
      nonfinite_step_ = record.run.computed;
    }
    const std::optional<double> limit = norms_.LimitOf(record.run.computed);
    norms_.Computed(record.run.computed, record.outcome.norm, record.outcome.applied);
    const bool skips_spike = is_finite && !record.outcome.applied;
    if (skips_spike && last_of_spikes_ == 0 &&
        record.run.computed - norms_.norms().back().step >= kMostSpikesInARow) {
      last_of_spikes_ = record.run.computed;
    }
    const bool is_spike =
        MaySkipSpike(record.run.computed) ? skips_spike : limit.has_value() && record.outcome.norm > *limit;
    ActOn(AgreedOf(record.outcome));
    const double seconds = record.seconds + std::exchange(idle_seconds_, 0);
    const int64_t computed = record.run.computed;
    reports_->Computed(std::move(record), seconds);
    if (is_spike) {
      reports_->SetScalar(StepReports::kSpikeLimit, limit.value());
    }
    for (const auto& [name, epochs] : text_.EpochsAfter(computed)) {
      reports_->SetScalar("epoch/" + name, epochs);
    }
    Lap();
    if (updates_.skipped() > 0) {
      reports_->SetScalar("skipped_steps", static_cast<double>(updates_.skipped()));
    }
  }

  void Drain() {
    while (executor_.in_flight() > 0) {
      Await();
    }
  }

  bool MaySkipSpike(int64_t step) const {
    return plan_.train.skips_spikes && NormWindow::MaySkip(step, plan_.train.optimizer.schedule.warmup_steps);
  }

  // On the requests that the ranks have agreed on.
  void ActOn(const Agreed& agreed) {
    if (agreed.profile.id != 0) {
      requests_.ProfileAgreed(agreed.profile.id);
    }
    sequence_->Ended(agreed);
  }

  // The job has trained nothing, however many steps it took. All ranks come here.
  [[noreturn]] void FailUntrained(int64_t done_before) {
    const std::string places = checkpoint::TextOfRankZero(communicators_.report, reports_->first_places());
    throw NumericError(
        absl::StrCat("no step from ", done_before + 1, " to ", step(),
                     " changed a weight, because no step had finite gradients; not finite in step ",
                     first_skipped_, ": ", places),
        first_skipped_);
  }

  // What is in flight, saved and reported ends; a job with other data, or a mended one, goes on from it.
  void EndEarly() {
    Drain();
    saves_->End(step());
    reports_->Submit();
    reports_->Flush();
  }

  // All ranks come here after the same run.
  [[noreturn]] void FailWithoutTargets() {
    EndEarly();
    throw UserError(absl::StrCat("data: no target of the last ", kMostWithoutTargets,
                                 " steps counts, and none of them was applied: see data.count_first_token, "
                                 "and the masks of the text"));
  }

  // All ranks come here after the same run.
  [[noreturn]] void FailOfSpikes() {
    EndEarly();
    throw NumericError(absl::StrCat(kMostSpikesInARow, " steps in a row up to ", last_of_spikes_,
                                    " were not applied, the last one because its gradient norm is a spike "
                                    "(training.spikes: skip)"),
                       last_of_spikes_, proto::ReasonCode("GradientSpike"));
  }

  // Nothing of that step, nor of the one after it, is applied: the device skips the first, and the second's
  // update is not issued. All ranks come here after the same run.
  [[noreturn]] void StopOnNonfinite() {
    Drain();
    saves_->End(step());                        // the job that is mended goes on from it
    if (sequence_->step() < nonfinite_step_) {  // the update that skips it also says where they are
      Issue({.kind = RunKind::kUpdate, .applied = nonfinite_step_});
      Await();
    }
    if (reports_->step() == nonfinite_step_) {
      reports_->Submit();
    }
    reports_->Flush();
    const std::string places =
        checkpoint::TextOfRankZero(communicators_.report, reports_->nonfinite_places());
    throw NumericError(absl::StrCat("gradients of step ", nonfinite_step_, " are not finite: ", places,
                                    "; the step was not applied (training.nonfinite_gradients: stop)"),
                       nonfinite_step_);
  }

  // Seconds since the last call. The device times the runs, because the host may be late: it may have waited
  // for a later run while it issued that. The time between two steps, in which nothing is in flight, belongs
  // to the later one, validations and checkpoints to none: the seconds of the steps add up to the wall time
  // of training.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(lap_, now)).count();
  }

  // Until the validation is complete, or makes way for a request and goes on in the next call. Step 0 has a
  // report of nothing else.
  void Validate() {
    SetPhase(v1::RANK_PHASE_STEPPING);
    reports_->Flush();  // the ranks agree through the reports' communicator
    if (!validation_.has_value()) {
      validation_.emplace(text_.validation_rounds(), plan_.options.num_validation_microbatches);
    }
    while (!validation_->complete()) {
      const bool goes_on = !sequence_->validation_makes_way();
      if (goes_on && validation_->has_next() && executor_.in_flight() < 2) {
        IssueValidation(validation_->Next());
      } else if (executor_.in_flight() > 0) {
        validation_->Ended(executor_.Await().losses);
        if (goes_on) {
          ActOn(AgreeOnRequests(communicators_.report, requests_, step()));
        }
      } else {
        Lap();
        return;
      }
    }
    std::vector<TextLosses> validation;
    for (std::vector<double>& losses : validation_->TakeLosses()) {
      validation.push_back({.extent = text_.extent(validation.size()), .losses = std::move(losses)});
    }
    reports_->Validated(step(), std::move(validation));
    validation_.reset();
    sequence_->Validated();
    Lap();
    if (step() == 0) {
      reports_->Submit();
    }
  }

  void IssueValidation(const Validation::Piece& piece) {
    executor_.Issue(
        {.run = {.kind = RunKind::kValidate}},
        [this, piece](int round, int64_t* tokens) {
          text_.LoadValidation(piece.text, step(), piece.first_round + round, tokens);
        },
        step());
  }

  const plan::JobPlan& plan_;
  const RankConfig config_;
  const RankCommunicators communicators_;
  platform::Files& files_;
  RequestBox& requests_;
  link::SharedPage& page_;
  const SendToWorker send_;
  device::Device& device_;

  std::chrono::steady_clock::time_point lap_;
  double idle_seconds_ = 0;               // before the oldest run in flight
  std::optional<RunSequence> sequence_;   // once it is known where the job starts
  std::optional<Validation> validation_;  // in progress
  AppliedUpdates updates_{0, 0};
  NormWindow norms_{{}};
  int64_t last_of_spikes_ = 0;     // of too many in a row; 0: there are not
  int64_t updates_of_others_ = 0;  // of the job whose checkpoint this one started from
  int64_t first_skipped_ = 0;      // step; 0: none
  int without_targets_ = 0;        // of the newest steps, how many in a row have no target that counts
  int64_t nonfinite_step_ = 0;     // whose gradients were not finite, where the job is to stop then

  RankText text_;
  const std::string kernels_digest_;
  const std::vector<std::unique_ptr<model::Node>> nodes_;
  TrainingState state_;
  Executor executor_;
  std::optional<StepReports> reports_;  // once it is known where the job starts
  std::optional<RankSaves> saves_;      // likewise
  checkpoint::HeldLease lease_;         // of the checkpoint directory; rank 0
};

Rank::Rank(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
           platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
           SendToWorker send)
    : impl_(std::make_unique<Impl>(plan, config, communicators, files, requests, page, backend,
                                   std::move(send))) {}

Rank::~Rank() = default;

RankOutcome Rank::Run() { return impl_->Run(); }

std::exception_ptr Rank::FailHungCollective(const std::exception_ptr& error) {
  return impl_->FailHungCollective(error);
}

void Rank::ReleaseDirectory() { impl_->ReleaseDirectory(); }

int64_t Rank::step() const { return impl_->step(); }

const std::vector<fsdp::UnitShard>& Rank::units() const { return impl_->units(); }

fsdp::StateMemory Rank::StateOf(size_t unit) const { return impl_->StateOf(unit); }

device::Memory Rank::arena() const { return impl_->arena(); }

}  // namespace tandem::trainer
