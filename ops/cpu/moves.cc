// SPDX-License-Identifier: Apache-2.0
#include "ops/moves.h"

#include <cstring>
#include <type_traits>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"
#include "ops/window_starts.h"

namespace tandem::ops::cpu {
namespace {

template <typename From, typename To>
void ConvertRow(const From* from, int64_t columns, To* to) {
  if constexpr (std::is_same_v<From, Bf16> && std::is_same_v<To, float>) {
    RunKernel(WidenArgs<Bf16>{from, columns, to});
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Bf16>) {
    RunKernel(NarrowArgs<Bf16>{from, columns, to});
  } else if constexpr (std::is_floating_point_v<From> && std::is_floating_point_v<To>) {
    for (int64_t i = 0; i < columns; ++i) {
      to[i] = static_cast<To>(from[i]);
    }
  } else {
    for (int64_t i = 0; i < columns; ++i) {
      float between = 0;
      ConvertRow(from + i, 1, &between);
      ConvertRow(&between, 1, to + i);
    }
  }
}

}  // namespace

template <>
void RunKernel(const CopyArgs& args) {
  if (args.from_type == args.to_type) {
    const int64_t bytes = BytesOf(args.to_type);
    const bool whole = args.from_stride == args.columns && args.to_stride == args.columns;
    const int64_t rows = whole ? 1 : args.rows;
    const int64_t row_bytes = (whole ? args.rows * args.columns : args.columns) * bytes;
    for (int64_t row = 0; row < rows && row_bytes > 0; ++row) {
      std::memcpy(static_cast<char*>(args.to) + row * args.to_stride * bytes,
                  static_cast<const char*>(args.from) + row * args.from_stride * bytes,
                  static_cast<size_t>(row_bytes));
    }
    return;
  }
  WithElementType(Array(args.from, args.from_type, DeviceKind::kCpu, 1, 1), [&]<typename From>(From) {
    WithElementType(Array(args.to, args.to_type, DeviceKind::kCpu, 1, 1), [&]<typename To>(To) {
      if constexpr (!std::is_same_v<From, To>) {
        for (int64_t row = 0; row < args.rows; ++row) {
          ConvertRow(static_cast<const From*>(args.from) + row * args.from_stride, args.columns,
                     static_cast<To*>(args.to) + row * args.to_stride);
        }
      }
    });
  });
}

template <>
void RunKernel(const WindowStartsArgs& args) {
  for (int64_t sequence = 0; sequence < args.sequences; ++sequence) {
    for (int64_t row = 0; row < args.length; ++row) {
      args.starts[sequence * args.length + row] = WindowStart(args, sequence, row);
    }
  }
}

template <>
void RunKernel(const FillArgs& args) {
  if (args.bytes > 0) {
    std::memset(args.to, args.byte, static_cast<size_t>(args.bytes));
  }
}

}  // namespace tandem::ops::cpu
