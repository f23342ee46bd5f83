// SPDX-License-Identifier: Apache-2.0
#include "trainer/placed_program.h"

#include <algorithm>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {
namespace {

std::vector<int> PlacesAmong(const std::vector<schedules::CommunicatorUse>& all,
                             const std::vector<schedules::CommunicatorUse>& of_program) {
  std::vector<int> places;
  for (const schedules::CommunicatorUse& use : of_program) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const schedules::CommunicatorUse& other) {
      return other.group == use.group && other.purpose == use.purpose;
    });
    if (found == all.end()) {
      throw std::logic_error(absl::StrCat("no communicator for ", use.group, " ", use.purpose));
    }
    places.push_back(static_cast<int>(found - all.begin()));
  }
  return places;
}

}  // namespace

PlacedProgram::PlacedProgram(const schedules::Program& program, const comm::Communicators& communicators,
                             const std::vector<schedules::CommunicatorUse>& uses, SharedCalls& calls,
                             int first)
    : uses_of(PlacesAmong(uses, program.communicators)),
      program(program,
              [&](const schedules::Instruction& in, int parity) {
                return calls.Get(program, in, parity,
                                 in.communicator < 0 ? nullptr : &communicators[uses_of[in.communicator]]);
              }),
      first(first) {}

}  // namespace tandem::trainer
