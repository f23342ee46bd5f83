// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/communicator.h"

namespace tandem::comm {

// Tests what every communicator must do, whatever its implementation. All ranks call it.
void ExpectCollectivesMoveTheRightBytes(Communicator& comm);

// Tests a group of two ranks: both send to each other in turn. Both call it.
void ExpectTransfersArrive(Communicator& link);

}  // namespace tandem::comm
