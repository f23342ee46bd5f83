// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/communicator.h"

namespace tandem::comm {

// What every communicator must do, whatever it is made of. Called on all ranks; checks with EXPECT.
void ExpectCollectivesMoveTheRightBytes(Communicator& comm);

}  // namespace tandem::comm
