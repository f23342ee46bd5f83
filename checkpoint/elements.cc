// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/elements.h"

#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "fsdp/bf16.h"

namespace tandem::checkpoint {
namespace {

using device::Bf16;
using device::ElementKind;

struct Half {
  uint16_t bits;
};

float Widen(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t exponent = value.bits >> 10 & 0x1F;
  const uint32_t mantissa = value.bits & 0x3FF;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t wide = exponent == 0x1F ? 0xFF : exponent + 127 - 15;
  const uint32_t bits = sign | wide << 23 | mantissa << 13;
  float result = 0;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

template <typename From, typename To>
To Converted(From from) {
  const auto wide = [&] {
    if constexpr (std::is_same_v<From, Half>) {
      return Widen(from);
    } else {
      return fsdp::Widen(from);
    }
  }();
  if constexpr (std::is_same_v<To, Bf16>) {
    return fsdp::RoundToBf16(static_cast<float>(wide));
  } else {
    return static_cast<To>(wide);
  }
}

template <typename From, typename To>
void ConvertEach(const char* from, char* to, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    From read;
    std::memcpy(&read, from + i * sizeof(From), sizeof(From));
    const To written = Converted<From, To>(read);
    std::memcpy(to + i * sizeof(To), &written, sizeof(To));
  }
}

template <typename From>
void ConvertFrom(const char* from, ElementKind type, char* to, int64_t elements) {
  switch (type) {
    case ElementKind::kFloat:
      return ConvertEach<From, float>(from, to, elements);
    case ElementKind::kDouble:
      return ConvertEach<From, double>(from, to, elements);
    case ElementKind::kBf16:
      return ConvertEach<From, Bf16>(from, to, elements);
    default:
      throw std::logic_error(absl::StrCat("elements cannot become ", device::ToText(type)));
  }
}

void Convert(const char* from, std::string_view dtype, ElementKind type, char* to, int64_t elements) {
  if (dtype == SafetensorsDtype(type)) {
    std::memcpy(to, from, static_cast<size_t>(elements * device::BytesOf(type)));
  } else if (dtype == "F16") {
    ConvertFrom<Half>(from, type, to, elements);
  } else if (dtype == "BF16") {
    ConvertFrom<Bf16>(from, type, to, elements);
  } else if (dtype == "F32") {
    ConvertFrom<float>(from, type, to, elements);
  } else if (dtype == "F64") {
    ConvertFrom<double>(from, type, to, elements);
  } else {
    throw std::logic_error(absl::StrCat("elements of ", std::string(dtype), " cannot become others"));
  }
}

}  // namespace

Elements Elements::Part(int64_t begin, int64_t elements) const {
  Elements part = *this;
  part.memory = {.begin = memory.begin + begin * device::BytesOf(type),
                 .bytes = elements * device::BytesOf(type)};
  return part;
}

std::string SafetensorsDtype(ElementKind type) {
  switch (type) {
    case ElementKind::kFloat:
      return "F32";
    case ElementKind::kDouble:
      return "F64";
    case ElementKind::kBf16:
      return "BF16";
    case ElementKind::kInt64:
      return "I64";
    case ElementKind::kByte:
      return "U8";
    case ElementKind::kNone:
      break;
  }
  throw CheckpointError(absl::StrCat("checkpoint: arrays of ", device::ToText(type), " cannot be saved"));
}

void Write(std::string_view from, const Elements& to, int64_t at) {
  if (to.device == nullptr) {
    std::memcpy(to.memory.begin + at, from.data(), from.size());
    return;
  }
  to.device->CopyToDevice(to.memory.begin + at, from.data(), static_cast<int64_t>(from.size()));
  to.device->Synchronize();
}

void WriteConverted(std::string_view from, std::string_view dtype, const Elements& to) {
  if (to.device == nullptr) {
    Convert(from.data(), dtype, to.type, to.memory.begin, to.size());
    return;
  }
  std::string converted(static_cast<size_t>(to.memory.bytes), 0);
  Convert(from.data(), dtype, to.type, converted.data(), to.size());
  Write(converted, to, 0);
}

void Read(const Elements& from, ElementKind type, std::string& out) {
  std::string held;
  const char* data = from.memory.begin;
  if (from.device != nullptr) {
    held.resize(static_cast<size_t>(from.memory.bytes));
    from.device->CopyToHost(held.data(), data, from.memory.bytes);
    from.device->Synchronize();
    if (from.type == type) {
      out = std::move(held);
      return;
    }
    data = held.data();
  }
  out.resize(static_cast<size_t>(from.size() * device::BytesOf(type)));
  Convert(data, SafetensorsDtype(from.type), type, out.data(), from.size());
}

}  // namespace tandem::checkpoint
