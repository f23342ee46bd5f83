// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "link/shared_page.h"
#include "trainer/rank.h"
#include "trainer/requests.h"
#include "trainer/run_sequence.h"
#include "trainer/step_reports.h"
#include "trainer/training_state.h"

namespace tandem::trainer {

// The saves of one rank as its runs go on: what each waits for, what waits for it, and the requests that it
// answers. TrainingState writes them. Used by the rank's thread; all ranks make the same calls between the
// same two decisions of the sequence. Throws as TrainingState and StepReports do.
class RankSaves {
 public:
  // has_directory: of the job; without one nothing is saved, and requests are answered with that. All outlive
  // it, and `state` calls what this has left there: end its saves (EndSaves) first.
  RankSaves(bool has_directory, TrainingState& state, RunSequence& sequence, StepReports& reports,
            RequestBox& requests, link::SharedPage& page, const SendToWorker& send);
  RankSaves(const RankSaves&) = delete;
  RankSaves& operator=(const RankSaves&) = delete;

  // Saves the state after the step of the sequence. No run is in flight. saving: but for what is pending and
  // for its stall. The sequence learns whether it succeeded.
  void Save(TrainingState::Saving saving);

  // Before a run of train_save, which copies the state after `step`: the save before it reads what that one
  // overwrites.
  void MakeWay(int64_t step);
  // For how long the last MakeWay waited.
  double wait_seconds() const { return wait_seconds_; }
  // That run has ended, and its step is reported but for what is in metrics.jsonl soon: that comes before the
  // checkpoint. saving: but for its stall.
  void Begin(TrainingState::Saving saving);

  // Waits for the save that is written beside training; `step` waits. False: it failed, and its step is to be
  // saved again.
  bool End(int64_t step);

  // Answers what the ranks have acted on, once the newest save is done, with its outcome. False: that was
  // tried, and is once more.
  bool AnswerRequests();
  // The job stops, which its requests waited for.
  void AnswerStopped() { Answer(requests_.Finish(), ""); }
  // The job is done: every request, whether the ranks have acted on it or not.
  void AnswerAll();

 private:
  // On the rank's thread, or on the one that saves.
  void Answer(const std::vector<uint64_t>& ids, const std::string& error) const;
  void AnswerWhenSaved(std::vector<uint64_t> ids);
  void SetPhase(v1::RankPhase phase) { page_.phase.store(phase, std::memory_order_relaxed); }

  const bool has_directory_;
  TrainingState& state_;
  RunSequence& sequence_;
  StepReports& reports_;
  RequestBox& requests_;
  link::SharedPage& page_;
  const SendToWorker& send_;

  std::string error_;          // of the newest save that training waited for; empty: it succeeded
  bool asked_beside_ = false;  // a save began beside training for requests that wait for an answer
  // Of the run of train_save that was issued last.
  double wait_seconds_ = 0;
  std::optional<std::vector<uint64_t>> answers_;  // requests that it is for
};

}  // namespace tandem::trainer
