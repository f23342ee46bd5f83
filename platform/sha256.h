// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tandem::platform {

// SHA-256 over bytes that come piece by piece. Throws std::runtime_error if OpenSSL does not offer it. Not
// thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void Add(std::string_view bytes);

  // 64 lower-case hexadecimal digits, of all that was added. Once.
  std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Of(std::string_view bytes);

}  // namespace tandem::platform
