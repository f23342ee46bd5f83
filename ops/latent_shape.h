// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// The heads of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1). Only a part of a
// query and key is rotated, and values may be shorter.
struct LatentHeads {
  int64_t heads = 0;
  int64_t content = 0;  // dims of a query and key that are not rotated
  int64_t rotary = 0;   // dims that are rotated; even
  int64_t value = 0;    // dims of a value, at most head_dim()

  int64_t head_dim() const { return content + rotary; }
};
inline constexpr int64_t kMostRotary = 512;  // limit of LatentHeads::rotary

}  // namespace tandem::ops
