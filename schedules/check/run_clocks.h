// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "schedules/program/program.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {

// What every instruction of one run knows to have ended when it starts: the instructions before it on its
// stream, its waits, everything that a host wait issued earlier waited for, and of the former run what
// follows from two facts of the executor:
//
//   * The streams of a run start after all streams of the former run but those that copy to and from the
//     host. Nothing is assumed of when a copy stream starts, except that it goes on after its own former run.
//   * Run n has ended before run n + 2 is issued, so only the former run can still be in flight.
//
// The former run is one pseudo-instruction for each of its copy streams, and one for all its other streams.
class RunClocks {
 public:
  // The program must be formed. `stage`: all programs that the former run may have been.
  RunClocks(const Program& program, absl::Span<const Program* const> stage);

  // The streams of the program, then copy streams that only other programs have, then the former run's other
  // streams.
  int num_streams() const { return clocks_.num_streams(); }
  int FormerStream() const { return num_streams() - 1; }
  // Another program's stream of that name: the copy stream, or FormerStream() where it does not copy.
  int StreamOfFormer(const Stream& stream) const;

  // Per stream, the place up to which everything has ended when instruction i has. What it knows when it
  // starts is the same without itself.
  absl::Span<const int> End(int i) const { return clocks_.End(i + num_former_); }
  int place(int i) const { return clocks_.place(i + num_former_); }

  // The same for the issuing thread when it issues instruction i: only host waits teach it.
  absl::Span<const int> KnownByHost(int i) const {
    return absl::MakeConstSpan(host_known_).subspan(host_epochs_[i] * num_streams(), num_streams());
  }

  // The instruction at a place of a stream; -1: of the former run.
  int At(int stream, int place) const;

 private:
  std::vector<std::string> copy_streams_;  // by stream; empty where it does not copy
  VectorClocks clocks_;
  int num_former_ = 0;
  std::vector<std::vector<int>> instructions_;  // stream x place - 1
  std::vector<int> host_known_;                 // epoch x stream
  std::vector<int> host_epochs_;                // per instruction
};

}  // namespace tandem::schedules
