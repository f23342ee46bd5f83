// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "fsdp/host_device.h"

namespace tandem::fsdp {

// Random numbers that have the same bits on the host and on GPUs: both compile this source, which uses only
// additions, products, quotients and roots, because every device rounds these in the same way. Must be
// compiled without contraction into fused multiply-add (CMakeLists.txt).
//
// The coefficients of the polynomials are FreeBSD's (msun), whose notice says: Copyright (C) 1993 by Sun
// Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this software is
// freely granted, provided that this notice is preserved.

struct PhiloxWords {
  uint32_t word[4];
};

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// random bits as a pure function of a counter and a key.
TANDEM_HOST_DEVICE inline PhiloxWords Philox(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter.word[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {
        {static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// log(n / 2^53) for 0 < n <= 2^53, within one unit in the last place: the polynomials of FreeBSD's e_log.c
// (Sun Microsystems, 1993).
TANDEM_HOST_DEVICE inline double LogOfFraction(uint64_t n) {
  double x = static_cast<double>(n);
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>(bits >> 52) - 1023 - 53;
  bits = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1023} << 52;
  memcpy(&x, &bits, sizeof(x));  // in [1, 2); then in (sqrt(1/2), sqrt(2)], and x 2^exponent is the fraction
  if (x > 1.4142135623730951) {
    x *= 0.5;
    ++exponent;
  }
  const double f = x - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  const double w = z * z;
  const double even =
      w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f;
  const double k = exponent;
  return k * 6.93147180369123816490e-01 -
         ((half_square - (s * (half_square + (even + odd)) + k * 1.90821492927058770002e-10)) - f);
}

// cos(2 pi n / 2^53) for n < 2^53: the polynomials of FreeBSD's k_sin.c and k_cos.c for the octant.
TANDEM_HOST_DEVICE inline double CosOfTurn(uint64_t n) {
  constexpr uint64_t kQuarter = uint64_t{1} << 51;
  const uint64_t quarter = (n + kQuarter / 2) / kQuarter;  // the nearest of 0 ... 4
  const auto rest = static_cast<double>(static_cast<int64_t>(n - quarter * kQuarter));
  const double x = rest * 0x1p-53 * 6.283185307179586;  // in [-pi/4, pi/4]
  const double z = x * x;
  if (quarter % 2 == 0) {
    const double tail =
        z * (4.16666666666666019037e-02 +
             z * (-1.38888888888741095749e-03 +
                  z * (2.48015872894767294178e-05 +
                       z * (-2.75573143513906633035e-07 +
                            z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    const double half = 0.5 * z;
    const double w = 1 - half;
    const double cosine = w + (((1 - w) - half) + z * tail);
    return quarter == 2 ? -cosine : cosine;
  }
  const double tail = 8.33333333332248946124e-03 +
                      z * (-1.98412698298579493134e-04 +
                           z * (2.75573137070700676789e-06 +
                                z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
  const double sine = x + z * x * (-1.66666666666666324348e-01 + z * tail);
  return quarter == 1 ? -sine : sine;
}

TANDEM_HOST_DEVICE inline PhiloxWords PhiloxOf(uint64_t seed, uint64_t stream, uint64_t index) {
  return Philox({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                  static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}},
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// A uniform number in (0, 1): an odd multiple of 2^-53.
TANDEM_HOST_DEVICE inline double PhiloxUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  const PhiloxWords bits = PhiloxOf(seed, stream, index);
  const uint64_t number = (uint64_t{bits.word[0]} << 32 | bits.word[1]) >> 12;
  return static_cast<double>(2 * number + 1) * 0x1p-53;
}

// A standard normal number by Box-Muller in double. It is a pure function of the three arguments, the same on
// every rank.
TANDEM_HOST_DEVICE inline double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index) {
  const PhiloxWords bits = PhiloxOf(seed, stream, index);
  // Each has 53 bits. The first is in (0, 1], so that its logarithm is finite.
  const uint64_t first = ((uint64_t{bits.word[0]} << 32 | bits.word[1]) >> 11) + 1;
  const uint64_t second = (uint64_t{bits.word[2]} << 32 | bits.word[3]) >> 11;
  return sqrt(-2 * LogOfFraction(first)) * CosOfTurn(second);
}

}  // namespace tandem::fsdp
