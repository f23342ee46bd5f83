// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::proto {

// What controllers and workers of this build speak with each other (Hello.protocol_min, protocol_max).
inline constexpr int kProtocol = 1;

}  // namespace tandem::proto
