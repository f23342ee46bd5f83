// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/one_f_one_b.h"

#include <algorithm>

namespace tandem::schedules {
namespace {

// The passes of one microbatch, both ways, as the sequential schedule has them.
void Append(const PassList& one, bool forward, int microbatch, PassList& passes) {
  for (NodePass pass : one) {
    const bool of_forward =
        pass.opcode == Opcode::kForward ||
        ((pass.opcode == Opcode::kSend || pass.opcode == Opcode::kReceive) && !pass.gradient);
    if (of_forward == forward) {
      pass.microbatch = microbatch;
      passes.push_back(pass);
    }
  }
}

}  // namespace

PassList OneFOneB(const Outline& outline, int num_stages, int num_microbatches) {
  const PassList one = Sequential(outline, 1);
  const int num_warmup = std::min(num_stages - outline.stage - 1, num_microbatches);
  PassList passes;
  int forward = 0;
  int backward = 0;
  while (forward < num_warmup) {
    Append(one, true, forward++, passes);
  }
  while (forward < num_microbatches) {  // steady state
    Append(one, true, forward++, passes);
    Append(one, false, backward++, passes);
  }
  while (backward < num_microbatches) {  // cooldown
    Append(one, false, backward++, passes);
  }
  return passes;
}

}  // namespace tandem::schedules
