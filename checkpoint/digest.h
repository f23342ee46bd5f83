// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tandem::checkpoint {

// XXH3-128 as checkpoints write it: 32 hexadecimal digits.
std::string Digest(std::string_view content);

// The Digest of what comes in parts.
class DigestOfParts {
 public:
  DigestOfParts();
  ~DigestOfParts();
  DigestOfParts(DigestOfParts&&) noexcept;
  DigestOfParts& operator=(DigestOfParts&&) noexcept;

  void Add(std::string_view part);
  std::string Get() const;  // of the parts so far, one behind the other

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::checkpoint
