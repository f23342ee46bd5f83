// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::platform {

// "0.1.0+4f2c9d1a0b7e": version and commit. A trainer exits if its worker daemon has another.
const std::string& BuildVersion();

}  // namespace tandem::platform
