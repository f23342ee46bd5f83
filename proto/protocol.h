// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::proto {

// The protocol versions of controllers and workers of this build (Hello.protocol_min, protocol_max).
inline constexpr int kProtocol = 1;

}  // namespace tandem::proto
