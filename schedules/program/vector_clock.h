// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Vector clocks, with which the passes and the check decide which instructions have finished before which. An
// instruction knows others to have finished before it starts: those before it on its stream, those that it
// waits for, and everything that these know. Not thread-safe.
class VectorClocks {
 public:
  explicit VectorClocks(int num_streams) : num_streams_(num_streams), now_(num_streams * num_streams, 0) {}

  int num_streams() const { return num_streams_; }
  int num_instructions() const { return static_cast<int>(streams_.size()); }

  // By stream, how many of its instructions have finished before the next instruction on `stream` starts,
  // without that instruction's own waits.
  absl::Span<const int> Now(int stream) const {
    return absl::MakeConstSpan(now_).subspan(stream * num_streams_, num_streams_);
  }

  // By stream, how many of its instructions have finished when instruction i has ended, i included.
  absl::Span<const int> End(int i) const {
    return absl::MakeConstSpan(ends_).subspan(static_cast<size_t>(i) * num_streams_, num_streams_);
  }

  int stream(int i) const { return streams_[i]; }
  int place(int i) const { return places_[i]; }  // its place on its stream, from 1

  // True if `known` implies that instruction `earlier` has finished.
  bool Knows(absl::Span<const int> known, int earlier) const {
    return known[streams_[earlier]] >= places_[earlier];
  }

  // Makes the next instruction on `stream` wait for instruction `earlier`.
  void Wait(int stream, int earlier) {
    for (int s = 0; s < num_streams_; ++s) {
      int& now = now_[stream * num_streams_ + s];
      now = std::max(now, ends_[static_cast<size_t>(earlier) * num_streams_ + s]);
    }
  }

  // Issues the next instruction, after its waits, and returns its number, from 0. Every instruction that is
  // issued after a host wait, on any stream, knows that the wait has ended.
  int Issue(const Instruction& instruction) {
    const int issued = Issue(instruction.stream);
    for (int s = 0; s < num_streams_ && instruction.opcode == Opcode::kHostWait; ++s) {
      Wait(s, issued);
    }
    return issued;
  }

  // Issues an instruction that is not a host wait.
  int Issue(int stream) {
    const int place = ++now_[stream * num_streams_ + stream];
    const auto begin = now_.begin() + stream * num_streams_;
    ends_.insert(ends_.end(), begin, begin + num_streams_);
    streams_.push_back(stream);
    places_.push_back(place);
    return num_instructions() - 1;
  }

 private:
  int num_streams_;
  std::vector<int> now_;   // stream x stream
  std::vector<int> ends_;  // instruction x stream
  std::vector<int> streams_;
  std::vector<int> places_;
};

}  // namespace tandem::schedules
