// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/communicator.h"

namespace tandem::comm {

// What every communicator must do, whatever it is made of. Called on all ranks; checks with EXPECT.
void ExpectCollectivesMoveTheRightBytes(Communicator& comm);

// Tests a link of two ranks: both send to each other in turn.
void ExpectTransfersArrive(Communicator& link);

}  // namespace tandem::comm
