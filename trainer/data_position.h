// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/data_segment.h"
#include "checkpoint/info.h"

namespace tandem::trainer {

// Where in its texts a job goes on from a checkpoint.
struct DataStart {
  std::vector<checkpoint::DataSegment> segments;  // of all jobs so far; the job reads the last one on
  std::vector<std::string> changes;               // what is read otherwise than before, a clause each
};

// now: what the job reads: all of a segment but its beginning and what was taken. Of the checkpoint's job the
// same texts, weights, sequences, batch and seed: its segment goes on, and must count what this build counts.
// Otherwise a new one begins at the checkpoint's step: texts go on by name where they were, new ones begin,
// ones that are gone are kept for a later return; with another seed, order or cut, a text begins its next
// epoch, and so does one that was data.train and is in data.sources, or vice versa, which its digest shows. A
// text of another digest goes on by its count. A checkpoint of an older build has no segments; what it says
// of its batch stands for one. Throws UserError with the reason DataPositionDiffers where the counts differ.
// Pure.
DataStart ContinueData(const checkpoint::Info& there, const checkpoint::DataSegment& now);

// The segments of a checkpoint of `step`, by whose end so many windows of each of the last one's texts are
// taken.
std::vector<checkpoint::DataSegment> SegmentsUpTo(std::vector<checkpoint::DataSegment> segments,
                                                  const std::vector<int64_t>& taken);

}  // namespace tandem::trainer
