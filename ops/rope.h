#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace tandem::ops {

// Rotary position embedding, half-split ("rotate_half") as in Hugging Face's models: dims i and i + d / 2 of
// a head rotate by position / theta^(2 i / d).

// Fills tables [S, d / 2]: cosine and sine of position times frequency, computed in double. They are of
// float where what is rotated is of bfloat16.
void RopeTables(double theta, at::Tensor& cosines, at::Tensor& sines);

// Rotates the first `heads` heads of every row in place. x: [B * S, ≥ heads * d]; row t has position t mod S.
void Rope(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& x);

// The transpose of the rotation, which rotates back.
void RopeBackward(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& grad);

}  // namespace tandem::ops
