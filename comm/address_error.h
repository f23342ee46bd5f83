// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace tandem::comm {

// This machine cannot listen at the address that its worker gives ranks; no other rank has anything to do
// with it.
class AddressError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tandem::comm
