#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// One of the ranks that run together: of each stage of a job one stands for all that run the same program.
struct RankProgram {
  std::string name;  // "rank a", "stage 1"
  const Outline* outline = nullptr;
  const Program* program = nullptr;
  // By communicator: ranks of one number meet in it. A rank whose number no other has meets nobody.
  std::array<int, kNumCommunicators> groups{};
};

// Ranks that meet in every communicator, named "rank a", "rank b", ...
std::vector<RankProgram> InOneGroup(const Outline& outline, const std::vector<const Program*>& programs);

// Proves that ranks meet in every collective: those of one group issue the same collectives in the same order
// on each communicator, and there is no circle of waits over streams, communicators and ranks in which they
// stand still. InvalidArgument names the two instructions that meet and do not fit, or all instructions of a
// circle. Requires programs that CheckProgram accepts. Linear in the number of instructions.
absl::Status CheckRanks(const std::vector<RankProgram>& ranks);

}  // namespace tandem::schedules_v1
