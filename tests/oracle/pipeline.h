// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::oracle {

using Ended = std::pair<int, int>;  // a stage, and one of its instructions

// One run of the stages of a pipeline together, each one rank with real streams. The host issues in order,
// and holds if a stream has eight instructions that have not ended. An instruction starts when its stream
// has come to it and its waits have ended; a send, receive or gradient norm ends when what it meets has
// started too. The k-th exchange of two stages on a communicator meets the other's k-th there. An instruction
// that can go on stays able to, so one run says it all: what goes wrong (all stand still, or what meets is
// not the same), or nothing. order: gets the instructions as they end, a send directly before its receive.
std::optional<std::string> FindHarmTogether(const std::vector<schedules::Outline>& outlines,
                                            const std::vector<const schedules::Program*>& programs,
                                            std::vector<Ended>* order = nullptr);

}  // namespace tandem::oracle
