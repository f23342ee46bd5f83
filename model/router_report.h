// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::model {

// What a route node reports of one microbatch, in doubles: index of each in its value "report".
struct RouterReport {
  int64_t experts = 0;

  // [0, experts): how many tokens each expert got.
  int64_t dropped() const { return experts; }  // choices that no expert had room for
  int64_t balance() const {
    return experts + 1;
  }  // losses of ops/router_losses.h, without their coefficients; zeros where a balance node has them
  int64_t z() const { return experts + 2; }
  int64_t size() const { return experts + 3; }
};

}  // namespace tandem::model
