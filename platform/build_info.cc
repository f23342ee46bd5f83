// SPDX-License-Identifier: Apache-2.0
#include "platform/build_info.h"

namespace tandem::platform {

const std::string& BuildVersion() {
  static const std::string* const version = new std::string(TANDEM_BUILD_VERSION);
  return *version;
}

}  // namespace tandem::platform
