// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::platform {

// Lets this process have as many file descriptors as the machine allows it; the log says where that fails.
void RaiseDescriptorLimit();

// How many it may have.
uint64_t DescriptorLimit();

}  // namespace tandem::platform
