// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// "3 of 15 failed, the last 2 in a row; step 60: write /runs/a: No space left on device", or "3 of 15 failed,
// the newest was saved; step 60: ...". Empty if none has failed. Without control characters.
std::string FailedSavesText(const v1::CheckpointRecord& record);

// What a user must know now of a job's checkpoints, a sentence each: that the newest saves have
// failed, and how the current attempt's start differs from what was asked. Without control characters.
std::vector<std::string> CheckpointWarnings(const v1::CheckpointRecord& record);

// Returns the checkpoints that exist according to the events, oldest first: checkpoint.keep has not removed
// them.
std::vector<v1::CheckpointCommitted> KeptCheckpoints(const std::vector<v1::Event>& events);

// How the time of a job divides, the largest part first: "2 min 5 s, of it 91 % in steps, 4 % starting, 3 %
// waiting, 2 % in checkpoints". Empty if nothing is known.
std::string TimeAccountText(const v1::TimeAccount& time);

// Which rank is behind, and where: "rank 1 on worker b is stopped, by a signal or a debugger, in step 37,
// forward of microbatch 2".
std::string BehindText(const v1::Progress& progress);

// When the job last made progress: "0.2 s ago", or, if it stands still, "none for 23 s: rank 1 on worker b
// ...".
std::string ProgressText(const v1::Progress& progress);

// Why an attempt ended, in one paragraph without newlines: "Rank 1 on worker b was killed by signal 9
// (SIGKILL) at step 134 in "F layers.3.mlp 1": out of memory." Leaves out what the cause does not have.
std::string CauseText(const v1::Cause& cause);

}  // namespace tandem::cli
