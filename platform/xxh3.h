// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tandem::platform {

// Computes XXH3-128, a fast hash, of bytes added in pieces. It finds accidental changes only, since two
// inputs with one hash can be made on purpose. Throws std::bad_alloc. Not thread-safe.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;

  void Add(std::string_view bytes);

  // The hash of all bytes added so far, in 32 lower-case hexadecimal digits.
  std::string Get() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Xxh3Of(std::string_view bytes);

}  // namespace tandem::platform
