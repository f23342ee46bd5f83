#pragma once

#include <cstdint>
#include <cstring>

#include "fsdp/host_device.h"
#include "ops/bf16.h"

namespace tandem::fsdp {

using ops::Bf16;

// One source for the host and for GPUs: the bits must agree.
TANDEM_HOST_DEVICE inline float Widen(float value) { return value; }
TANDEM_HOST_DEVICE inline double Widen(double value) { return value; }
TANDEM_HOST_DEVICE inline float Widen(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof(result));
  return result;
}

// To the nearest, ties to even.
TANDEM_HOST_DEVICE inline Bf16 RoundToBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>(value == value ? rounded : 0x7FC0)};
}

}  // namespace tandem::fsdp
