// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "device/bf16.h"
#include "fsdp/host_device.h"

namespace tandem::fsdp {

using device::Bf16;

// The host and GPUs compile this one source, because their results must have the same bits.
TANDEM_HOST_DEVICE inline float Widen(float value) { return value; }
TANDEM_HOST_DEVICE inline double Widen(double value) { return value; }
TANDEM_HOST_DEVICE inline float Widen(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof(result));
  return result;
}

// Rounds to the nearest, ties to even.
TANDEM_HOST_DEVICE inline Bf16 RoundToBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>(value == value ? rounded : 0x7FC0)};
}

}  // namespace tandem::fsdp
