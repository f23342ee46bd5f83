// SPDX-License-Identifier: Apache-2.0
// The build's name as its programs say it, read where they have it compiled in: a commit then links no test
// again.
#include <fstream>
#include <string>

#include "platform/build_info.h"
#include "platform/check.h"

namespace tandem::platform {

const std::string& BuildVersion() {
  static const std::string* const version = [] {
    std::ifstream file(TANDEM_BUILD_VERSION_FILE);
    auto* text = new std::string;
    TANDEM_CHECK(std::getline(file, *text),
                 "the folder of the build has its name, in " TANDEM_BUILD_VERSION_FILE);
    return text;
  }();
  return *version;
}

}  // namespace tandem::platform
