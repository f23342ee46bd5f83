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
  std::string name;  // everything that the job was made from
  schedules::Outline outline;
  schedules::BuildOptions options;
  schedules::StagePrograms stage;
};

// Makes a random job: any outline of the tests, strategy, precision, recomputation, number of ranks and
// microbatches, and prefetch; the default budget or the least. Its schedule is the sequential one, perhaps
// with separate weight halves, or the overlapped one, or one that interleaves the forward of a microbatch at
// random with the backward of the one before it and may delay weight halves.
Job RandomJob(std::mt19937_64& random);

// Makes a random job for the schedules that overlap experts' communication: one to three layers, some of
// which may be dense, made up or as model/ declares them for ranks that share experts; two to four
// microbatches; weight halves delayed or not.
Job OverlapJob(std::mt19937_64& random);

}  // namespace tandem::oracle
