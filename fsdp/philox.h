// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace tandem::fsdp {

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// random bits as a pure function of a counter and a key.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A standard normal number, the same on every rank: a pure function of the three. Box-Muller in double.
double PhiloxNormal(uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace tandem::fsdp
