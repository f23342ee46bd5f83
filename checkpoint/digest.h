#pragma once

#include <string>
#include <string_view>

namespace tandem::checkpoint {

// XXH3-128 of `content`, 32 lower-case hexadecimal digits.
std::string Xxh3(std::string_view content);

}  // namespace tandem::checkpoint
