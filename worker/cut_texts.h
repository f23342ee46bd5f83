// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "google/protobuf/message.h"

namespace tandem::worker {

// Cuts every text in the message, but for those in maps, at the end of a character, so that it has at most
// `max_bytes` and ends in "...": a cause may quote what a rank was given, and the controller refuses a
// session whose texts are too long. Requires max_bytes > 3.
void CutTexts(google::protobuf::Message& message, size_t max_bytes);

}  // namespace tandem::worker
