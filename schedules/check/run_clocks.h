// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "schedules/program/program.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {

// For each instruction of one run, the instructions that have certainly ended when it starts. These are the
// earlier instructions on its stream, those that it waits for, those that an earlier host wait waited for,
// and of the former run what follows from two facts about the executor:
//
// * The streams of a run start after all streams of the former run except those that copy to and from the
//   host. A copy stream continues after its own former run; nothing else is known about its start.
// * Run n has ended before run n + 2 is issued, so that only one former run can still be in flight.
//
// The former run is represented by one pseudo-instruction for each of its copy streams, and one for all its
// other streams.
class RunClocks {
 public:
  // The program must be formed. `stage` has all programs that the former run may have been.
  RunClocks(const Program& program, absl::Span<const Program* const> stage);

  // Streams are numbered: the streams of the program first, then copy streams that only other programs have,
  // then one for all other streams of the former run.
  int num_streams() const { return clocks_.num_streams(); }
  int FormerStream() const { return num_streams() - 1; }
  // The number of another program's stream, by name: its own if it is a copy stream, otherwise
  // FormerStream().
  int StreamOfFormer(const Stream& stream) const;

  // By stream, how many of its instructions have certainly ended when instruction i has ended. When it
  // starts, the same have ended except i itself.
  absl::Span<const int> End(int i) const { return clocks_.End(i + num_former_); }
  int place(int i) const { return clocks_.place(i + num_former_); }

  // By stream, how many of its instructions the issuing thread knows to have ended when it issues instruction
  // i. It knows this only from host waits.
  absl::Span<const int> KnownByHost(int i) const {
    return absl::MakeConstSpan(host_known_).subspan(host_epochs_[i] * num_streams(), num_streams());
  }

  // The instruction at a place of a stream; -1: one of the former run.
  int At(int stream, int place) const;

 private:
  std::vector<std::string> copy_streams_;  // by stream; empty if it is not a copy stream
  VectorClocks clocks_;
  int num_former_ = 0;
  std::vector<std::vector<int>> instructions_;  // stream x place - 1
  std::vector<int> host_known_;                 // epoch x stream
  std::vector<int> host_epochs_;                // by instruction: the number of host waits issued before it
};

}  // namespace tandem::schedules
