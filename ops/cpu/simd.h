// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

// Vectors of the widest registers of the instruction set for which the including file is compiled, by GCC's
// and clang's vector extension. Only for files that CMake compiles once for each instruction set. Everything
// is in a namespace of that instruction set (TANDEM_ISA), and no function here may call an inline function of
// the standard library, because the linker could keep a copy of it that the processor does not understand.
namespace tandem::ops::cpu::TANDEM_ISA {

using device::Arithmetic;
using device::Bf16;

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <typename T>
struct Lanes;

template <>
struct Lanes<float> {
  typedef float Vector __attribute__((vector_size(kVectorBytes)));
  typedef float Unaligned __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
  static constexpr int kCount = kVectorBytes / 4;
  static constexpr int kMantissaBits = 23;
  static constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr int32_t kRounderBits = 0x4B400000;
  static constexpr float kLowest = -87.0f;  // Exp of less is 0; exp of this is still a normal number
  static constexpr float kHighest = 88.0f;
};

template <>
struct Lanes<double> {
  typedef double Vector __attribute__((vector_size(kVectorBytes)));
  typedef double Unaligned __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
  typedef int64_t Bits __attribute__((vector_size(kVectorBytes)));
  static constexpr int kCount = kVectorBytes / 8;
  static constexpr int kMantissaBits = 52;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int64_t kRounderBits = 0x4338000000000000;
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
};

template <typename T>
using Vector = typename Lanes<T>::Vector;

// The number of elements of a row that are computed together.
template <typename T>
inline constexpr int64_t kStep = Lanes<T>::kCount;

// Builtins, because the functions of std:: are inline functions of the standard library.
inline float SquareRoot(float x) { return __builtin_sqrtf(x); }
inline double SquareRoot(double x) { return __builtin_sqrt(x); }
inline float Logarithm(float x) { return __builtin_logf(x); }
inline double Logarithm(double x) { return __builtin_log(x); }

inline float Widen(float x) { return x; }
inline double Widen(double x) { return x; }
inline float Widen(Bf16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }

inline void Narrow(float x, float& to) { to = x; }
inline void Narrow(double x, double& to) { to = x; }
inline void Narrow(float x, Bf16& to) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  to.bits = x == x ? static_cast<uint16_t>(rounded >> 16) : 0x7FC0;
}

// As many bfloat16s as a vector has floats.
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
typedef uint16_t UnalignedHalves __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));

template <typename E>
inline Vector<Arithmetic<E>> Load(const E* p) {
  return *reinterpret_cast<const typename Lanes<E>::Unaligned*>(p);
}
template <>
inline Vector<float> Load(const Bf16* p) {
  const Halves halves = *reinterpret_cast<const UnalignedHalves*>(p);
  return (Vector<float>)(__builtin_convertvector(halves, Words) << 16);
}

template <typename E>
inline void Store(E* p, Vector<Arithmetic<E>> v) {
  *reinterpret_cast<typename Lanes<E>::Unaligned*>(p) = v;
}
template <>
inline void Store(Bf16* p, Vector<float> v) {
  const Words bits = (Words)v;
  const Words rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const Words number = (Words)(v == v);  // all ones, or zero
  *reinterpret_cast<UnalignedHalves*>(p) =
      __builtin_convertvector((rounded & number) | (~number & 0x7FC0), Halves);
}

// Loads the first `count` lanes and sets the others to `rest`.
template <typename E>
inline Vector<Arithmetic<E>> LoadFirst(const E* p, int64_t count, Arithmetic<E> rest) {
  using T = Arithmetic<E>;
  alignas(kVectorBytes) T lanes[Lanes<T>::kCount];
  for (int i = 0; i < Lanes<T>::kCount; ++i) {
    lanes[i] = i < count ? Widen(p[i]) : rest;
  }
  return Load(lanes);
}

template <typename E>
inline void StoreFirst(E* p, int64_t count, Vector<Arithmetic<E>> v) {
  using T = Arithmetic<E>;
  alignas(kVectorBytes) T lanes[Lanes<T>::kCount];
  Store(lanes, v);
  for (int64_t i = 0; i < count; ++i) {
    Narrow(lanes[i], p[i]);
  }
}

// Load and store a vector of a row of `columns` elements, from element i on. Elements after the row are read
// as zeros, and not written. The end of a row goes through the same arithmetic as the rest. With a loop over
// single elements, the compiler would make several versions by the distances of pointers and contract
// multiply and add in only one, so that rounding would depend on the operands' addresses.
template <typename E>
inline Vector<Arithmetic<E>> LoadOfRow(const E* row, int64_t i, int64_t columns) {
  const int64_t left = columns - i;
  return left >= Lanes<Arithmetic<E>>::kCount ? Load(row + i) : LoadFirst(row + i, left, Arithmetic<E>{0});
}
template <typename E>
inline void StoreOfRow(E* row, int64_t i, int64_t columns, Vector<Arithmetic<E>> v) {
  const int64_t left = columns - i;
  if (left >= Lanes<Arithmetic<E>>::kCount) {
    Store<E>(row + i, v);
  } else {
    StoreFirst<E>(row + i, left, v);
  }
}

template <typename T>
inline Vector<T> Max(Vector<T> a, Vector<T> b) {
  return a > b ? a : b;
}

// Adds in halves, so that the order of the additions is a tree.
template <typename T>
inline T Sum(Vector<T> v) {
  alignas(kVectorBytes) T lanes[Lanes<T>::kCount];
  Store(lanes, v);
  for (int width = Lanes<T>::kCount / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      lanes[i] += lanes[i + width];
    }
  }
  return lanes[0];
}

template <typename T>
inline T Largest(Vector<T> v) {
  alignas(kVectorBytes) T lanes[Lanes<T>::kCount];
  Store(lanes, v);
  T largest = lanes[0];
  for (int i = 1; i < Lanes<T>::kCount; ++i) {
    largest = lanes[i] > largest ? lanes[i] : largest;
  }
  return largest;
}

// exp(r) for |r| <= ln(2) / 2, relative error about one unit in the last place: the Taylor series, whose
// first left-out term is below the rounding error.
inline Vector<float> ExpReduced(Vector<float> r) {
  Vector<float> p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  return p * r + 1.0f;
}

inline Vector<double> ExpReduced(Vector<double> r) {
  Vector<double> p = r * (1.0 / 6227020800) + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  return p * r + 1.0;
}

// exp(x); 0 below kLowest; the result of kHighest above it; NaN stays NaN.
template <typename T>
inline Vector<T> Exp(Vector<T> x) {
  using L = Lanes<T>;
  using Bits = typename L::Bits;
  const Vector<T> low = Vector<T>{} + L::kLowest;
  const Vector<T> high = Vector<T>{} + L::kHighest;
  const auto vanishes = x < low;
  Vector<T> y = x > high ? high : x;
  y = vanishes ? low : y;
  const Vector<T> shifted = y * static_cast<T>(1.44269504088896340736) + L::kRounder;
  const Vector<T> n = shifted - L::kRounder;
  // ln(2) in two parts, so that n times the first is exact.
  Vector<T> r;
  if constexpr (sizeof(T) == 4) {
    r = y - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
  } else {
    r = y - n * 6.93145751953125e-1;
    r = r - n * 1.42860682030941723212e-6;
  }
  const Bits exponent = ((Bits)shifted - L::kRounderBits) << L::kMantissaBits;
  const Vector<T> result = (Vector<T>)((Bits)ExpReduced(r) + exponent);
  const Vector<T> finite = vanishes ? Vector<T>{} : result;
  return x == x ? finite : x;
}

template <typename T>
inline Vector<T> Sigmoid(Vector<T> x) {
  return static_cast<T>(1) / (static_cast<T>(1) + Exp<T>(-x));
}

}  // namespace tandem::ops::cpu::TANDEM_ISA
