// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>

#include "schedules/build/schedule.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::oracle {

// One stage of a small job.
struct Job {
  std::string name;  // all that it was made of
  schedules::Outline outline;
  schedules::BuildOptions options;
  schedules::StagePrograms stage;
};

// Any outline of the tests, strategy, precision, recompute, number of ranks and microbatches, prefetch; the
// sequential schedule, or one in which a microbatch's forward runs over the backward of the one before it and
// weight halves are late; the default budget or the least.
Job RandomJob(std::mt19937_64& random);

// Of the schedules of experts' overlap alone: sparse layers, some between dense ones, made up or as model/
// declares them for ranks that share experts; one to three of them, two to four microbatches, weight halves
// at once or late weight halves.
Job OverlapJob(std::mt19937_64& random);

}  // namespace tandem::oracle
