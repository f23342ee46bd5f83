// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/info.h"

namespace tandem::trainer {

// The position in its texts at which a job continues from a checkpoint.
struct DataStart {
  std::vector<checkpoint::DataSegment> segments;  // all segments so far; this job continues the last one
  std::vector<std::string> changes;               // one clause for each change in what is read
};

// Decides how a job continues to read. `now` is the segment of this job, except where it begins and how many
// windows were taken before it.
//
// If the texts, their weights, the sequence length, the batch size and the seed are unchanged, the last
// segment of the checkpoint continues. Otherwise a new segment begins at the checkpoint's step:
//
// * A text with the same name continues after the windows taken so far, even if its digest has changed.
// * A text begins its next epoch if its windows come in another order: the seed, the sequence length or the
//   shuffling has changed, or a shuffled text moved between data.train and data.sources (which its digest
//   shows).
// * A new text begins with its first window. The position of a text that is gone is kept in case the text
//   returns.
//
// The segments of a checkpoint of an older build, which has none, are derived from its batch.
//
// Throws UserError with the reason DataPositionDiffers if the checkpoint's counts of windows are not those
// that this build computes for its step. Pure.
DataStart ContinueData(const checkpoint::Info& there, const checkpoint::DataSegment& now);

// Returns `segments` as a checkpoint stores them: `taken` is set in the last segment, to the number of
// windows of each text that the job has taken so far.
std::vector<checkpoint::DataSegment> SegmentsUpTo(std::vector<checkpoint::DataSegment> segments,
                                                  const std::vector<int64_t>& taken);

}  // namespace tandem::trainer
