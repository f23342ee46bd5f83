// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tandem::platform {

// SHA-256, in 64 lower-case hexadecimal digits. Throws std::runtime_error if OpenSSL does not offer it.
std::string Sha256Of(std::string_view bytes);

}  // namespace tandem::platform
