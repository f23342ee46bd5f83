// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::oracle {

using Ended = std::pair<int, int>;  // a stage, and the index of one of its instructions

// Executes one run of all stages of a pipeline together, each as one rank with real streams. The host issues
// in order, and stops while a stream has eight instructions that have not ended. An instruction starts when
// it is the first of its stream and its waits have ended. A send, receive or gradient norm ends when its
// counterparts have started too: the k-th exchange of two stages on a communicator meets the other stage's
// k-th there.
//
// An instruction that can proceed stays able to, so one run decides. Returns what goes wrong (all stages
// wait, or counterparts do not match), or nullopt. `order` gets the instructions as they end, a send directly
// before its receive.
std::optional<std::string> FindHarmTogether(const std::vector<schedules::Outline>& outlines,
                                            const std::vector<const schedules::Program*>& programs,
                                            std::vector<Ended>* order = nullptr);

}  // namespace tandem::oracle
