// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/run_clocks.h"

#include <algorithm>

namespace tandem::schedules {
namespace {

std::vector<std::string> CopyStreams(const Program& program, absl::Span<const Program* const> stage) {
  std::vector<std::string> names;
  for (const Stream& stream : program.streams) {
    names.push_back(stream.copies_host ? stream.name : "");
  }
  for (const Program* other : stage) {
    for (const Stream& stream : other->streams) {
      if (stream.copies_host && std::find(names.begin(), names.end(), stream.name) == names.end()) {
        names.push_back(stream.name);
      }
    }
  }
  return names;
}

}  // namespace

RunClocks::RunClocks(const Program& program, absl::Span<const Program* const> stage)
    : copy_streams_(CopyStreams(program, stage)), clocks_(static_cast<int>(copy_streams_.size()) + 1) {
  const int own_streams = static_cast<int>(program.streams.size());
  instructions_.resize(num_streams());
  for (int s = 0; s < FormerStream(); ++s) {
    if (!copy_streams_[s].empty()) {
      clocks_.Issue(s);
      instructions_[s].push_back(-1);
    }
  }
  const int former = clocks_.Issue(FormerStream());
  instructions_[FormerStream()].push_back(-1);
  num_former_ = clocks_.num_instructions();
  for (int s = 0; s < own_streams; ++s) {
    if (!program.streams[s].copies_host) {
      clocks_.Wait(s, former);
    }
  }
  host_known_.assign(num_streams(), 0);
  int epoch = 0;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    host_epochs_.push_back(epoch);
    for (const Wait& wait : instruction.waits) {
      clocks_.Wait(instruction.stream, wait.instruction + num_former_);
    }
    const int number = clocks_.Issue(instruction);
    instructions_[instruction.stream].push_back(i);
    if (instruction.opcode == Opcode::kHostWait) {
      for (int s = 0; s < num_streams(); ++s) {
        host_known_.push_back(std::max(host_known_[epoch * num_streams() + s], clocks_.End(number)[s]));
      }
      ++epoch;
    }
  }
}

int RunClocks::StreamOfFormer(const Stream& stream) const {
  if (!stream.copies_host) {
    return FormerStream();
  }
  return static_cast<int>(std::find(copy_streams_.begin(), copy_streams_.end(), stream.name) -
                          copy_streams_.begin());
}

int RunClocks::At(int stream, int place) const { return instructions_[stream][place - 1]; }

}  // namespace tandem::schedules
