// SPDX-License-Identifier: Apache-2.0
#include "trainer/rank_saves.h"

#include <chrono>
#include <utility>

#include "tandem/v1/trainer.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::trainer {
namespace {

constexpr char kNoDirectory[] = "the job saves no checkpoints: it has no checkpoint.directory";

double SecondsSince(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

RankSaves::RankSaves(bool has_directory, TrainingState& state, RunSequence& sequence, StepReports& reports,
                     RequestBox& requests, link::SharedPage& page, const SendToWorker& send)
    : has_directory_(has_directory),
      state_(state),
      sequence_(sequence),
      reports_(reports),
      requests_(requests),
      page_(page),
      send_(send) {}

void RankSaves::Save(TrainingState::Saving saving) {
  const auto begun = std::chrono::steady_clock::now();
  // The reports up to this step are in metrics.jsonl before the checkpoint that they belong to is there; one
  // whose validation is still to come is in the checkpoint.
  if (sequence_.validation_pending()) {
    saving.pending_report = reports_.Hold();
  } else {
    reports_.Submit();
    reports_.Flush();
  }
  End(sequence_.step());
  SetPhase(v1::RANK_PHASE_CHECKPOINTING);
  if (state_.saves_beside() && !sequence_.is_final()) {
    asked_beside_ = sequence_.checkpoint_wanted();
    state_.CopyState();
    saving.stall = SecondsSince(begun);
    state_.BeginSave(saving);
    sequence_.Saved(true);
  } else {
    error_ = state_.Save(saving, sequence_.is_final());
    sequence_.Saved(error_.empty());
  }
}

void RankSaves::MakeWay(int64_t step) {
  const auto begun = std::chrono::steady_clock::now();
  End(step);
  wait_seconds_ = SecondsSince(begun);
  answers_ = sequence_.checkpoint_wanted() ? std::make_optional(requests_.Finish()) : std::nullopt;
}

void RankSaves::Begin(TrainingState::Saving saving) {
  reports_.Flush();
  saving.stall = wait_seconds_;
  state_.BeginSave(saving);
  if (std::optional<std::vector<uint64_t>> ids = std::exchange(answers_, std::nullopt)) {
    AnswerWhenSaved(*std::move(ids));
  }
}

bool RankSaves::End(int64_t step) {
  if (!state_.saves_beside()) {
    return true;
  }
  SetPhase(v1::RANK_PHASE_CHECKPOINTING);
  const TaskThread::Ended ended = state_.AwaitSave(step);
  return ended.error.empty() || !sequence_.SaveFailed(ended.step);
}

bool RankSaves::AnswerRequests() {
  if (!std::exchange(asked_beside_, false) && !End(sequence_.step())) {
    return false;
  }
  std::vector<uint64_t> ids = requests_.Finish();
  if (!has_directory_) {
    Answer(ids, kNoDirectory);
  } else if (state_.saves_beside() && !sequence_.is_final()) {
    AnswerWhenSaved(std::move(ids));
  } else {
    Answer(ids, error_);
  }
  return true;
}

void RankSaves::AnswerAll() { Answer(requests_.FinishAll(), has_directory_ ? "" : kNoDirectory); }

void RankSaves::AnswerWhenSaved(std::vector<uint64_t> ids) {
  state_.WhenSaved([this, ids = std::move(ids)](const std::string& error) { Answer(ids, error); });
}

void RankSaves::Answer(const std::vector<uint64_t>& ids, const std::string& error) const {
  for (const uint64_t id : ids) {
    v1::FromTrainer message;
    message.set_request_done(id);
    message.set_request_error(error);
    send_(std::move(message));
  }
}

}  // namespace tandem::trainer
