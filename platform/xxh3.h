// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tandem::platform {

// XXH3-128 of bytes that come piece by piece: fast, and no protection against intent. Throws std::bad_alloc.
// Not thread-safe.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;

  void Add(std::string_view bytes);

  // 32 lower-case hexadecimal digits, of all that was added so far.
  std::string Get() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Xxh3Of(std::string_view bytes);

}  // namespace tandem::platform
