// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tandem::platform {

// Returns the SHA-256 of `bytes` in 64 lower-case hexadecimal digits. Throws std::runtime_error if OpenSSL
// has no SHA-256.
std::string Sha256Of(std::string_view bytes);

}  // namespace tandem::platform
