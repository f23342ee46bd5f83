// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 1: what an instruction names exists and fits, so that the other rules, the simulator and the trainer
// may take it as it is. Of every program:
//
//   * targets, microbatches, streams, communicators, buffers and parts are in range; waits point to lower
//     positions
//   * operands are, place by place, of the kind, subject, mode and size that the trainer binds there
//     (program.h)
//   * only rings are read from the former run, and nothing of a former run is changed; streams that copy to
//     and from the host touch nothing but rings
//   * every buffer lives as long as its kind says, and is divided as its unit is
//   * every buffer lies within its region, aligned; persistent ones below the locals and the same in every
//     program
//   * a communicator is used from one stream, the same in every program
absl::Status CheckFormed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
