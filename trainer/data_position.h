// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/info.h"

namespace tandem::trainer {

// Where in its texts a job continues from a checkpoint.
struct DataStart {
  std::vector<checkpoint::DataSegment> segments;  // of all jobs so far; this job continues the last one
  std::vector<std::string> changes;               // what is read differently from before, one clause each
};

// Decides how a job continues to read. `now` describes what the job reads: a complete segment, except its
// beginning and the windows taken before.
//
// If texts, weights, sequences, batch and seed are those of the checkpoint's job, its segment continues; then
// this build must count the same windows. Otherwise a new segment begins at the checkpoint's step: texts with
// the same name continue where they were, new texts begin, and texts that are gone are kept in case they
// return. If the seed, the order or the cut of a text changed, it begins its next epoch; its digest shows
// that it moved between data.train and data.sources, which counts as such a change. A text with another
// digest continues at its count. A checkpoint of an older build has no segments; what it says of its batch is
// used as one.
//
// Throws UserError with the reason DataPositionDiffers if the counts differ. Pure.
DataStart ContinueData(const checkpoint::Info& there, const checkpoint::DataSegment& now);

// The segments of a checkpoint of `step`. By the end of that step, `taken` windows of each text of the last
// segment are taken.
std::vector<checkpoint::DataSegment> SegmentsUpTo(std::vector<checkpoint::DataSegment> segments,
                                                  const std::vector<int64_t>& taken);

}  // namespace tandem::trainer
