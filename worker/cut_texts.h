// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "google/protobuf/message.h"

namespace tandem::worker {

// Cuts every string field of the message (except in maps) that is longer than `max_bytes` to at most that
// size, at the end of a UTF-8 character, with "..." at its end. A cause may quote long values of a job, and
// the controller refuses sessions with strings that are too long. Requires max_bytes > 3.
void CutTexts(google::protobuf::Message& message, size_t max_bytes);

}  // namespace tandem::worker
