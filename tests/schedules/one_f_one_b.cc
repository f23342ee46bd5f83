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
  // Steady state. Every stage could send at the same time and none receive: the gradient is received first.
  while (forward < num_microbatches) {
    Append(one, true, forward++, passes);
    PassList backwards;
    Append(one, false, backward++, backwards);
    const auto sends = std::find_if(passes.rbegin(), passes.rend(), [](const NodePass& pass) {
                         return pass.opcode != Opcode::kSend;
                       }).base();
    const auto first_pass =
        std::find_if(backwards.begin(), backwards.end(), [](const NodePass& pass) { return !pass.gradient; });
    passes.insert(sends, backwards.begin(), first_pass);
    passes.insert(passes.end(), first_pass, backwards.end());
  }
  while (backward < num_microbatches) {  // cooldown
    Append(one, false, backward++, passes);
  }
  return passes;
}

}  // namespace tandem::schedules
