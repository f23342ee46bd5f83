// SPDX-License-Identifier: Apache-2.0
#include "ops/permute.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Elements of a token that are summed at a time.
constexpr int64_t kSums = 512;

// How many slots each token has.
int64_t SlotsOf(const at::Tensor& tokens, const at::Tensor& rows, const at::Tensor& row_of) {
  const int64_t count = tokens.size(0);
  const int64_t slots = row_of.numel();
  TORCH_CHECK(count > 0 && slots % count == 0, slots, " slots are not as many for each of ", count,
              " tokens");
  CheckMatrix("tokens", tokens, count, tokens.size(1));
  CheckMatrix("rows", rows, rows.size(0), tokens.size(1));
  CheckElements("row_of", row_of, slots);
  return slots / count;
}

}  // namespace

void PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts, at::Tensor& row_of) {
  const int64_t slots = chosen.numel();
  const int64_t experts = counts.numel();
  CheckElements("chosen", chosen, slots);
  CheckElements("counts", counts, experts);
  CheckElements("row_of", row_of, slots);
  const int64_t* const expert_of = chosen.const_data_ptr<int64_t>();
  int64_t* const count_of = counts.mutable_data_ptr<int64_t>();
  int64_t* const rows = row_of.mutable_data_ptr<int64_t>();
  std::fill_n(count_of, experts, 0);
  for (int64_t slot = 0; slot < slots; ++slot) {
    const int64_t expert = expert_of[slot];
    TORCH_CHECK_INDEX(expert >= -1 && expert < experts, "slot ", slot, " is of expert ", expert, " of ",
                      experts);
    rows[slot] = expert < 0 ? -1 : count_of[expert]++;  // within the expert
  }
  if (chunk > 0) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      TORCH_CHECK_INDEX(count_of[expert] <= chunk, "expert ", expert, " has ", count_of[expert],
                        " rows, and room for ", chunk);
    }
    std::fill_n(count_of, experts, chunk);
  }
  // The counts hold where each expert begins while rows are moved there.
  int64_t begin = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    begin += std::exchange(count_of[expert], begin);
  }
  for (int64_t slot = 0; slot < slots; ++slot) {
    rows[slot] += expert_of[slot] < 0 ? 0 : count_of[expert_of[slot]];
  }
  for (int64_t expert = 0; expert + 1 < experts; ++expert) {
    count_of[expert] = count_of[expert + 1] - count_of[expert];
  }
  count_of[experts - 1] = begin - count_of[experts - 1];
}

bool PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows, at::Tensor& begins) {
  const int64_t experts = counts.numel();
  CheckElements("counts", counts, experts);
  CheckElements("begins", begins, experts + 1);
  const int64_t* const count_of = counts.const_data_ptr<int64_t>();
  int64_t* const out = begins.mutable_data_ptr<int64_t>();
  int64_t begin = 0;
  for (int64_t expert = 0; expert <= experts; ++expert) {
    out[expert] = std::clamp<int64_t>(begin - first, 0, rows);
    begin += expert < experts ? count_of[expert] : 0;
  }
  return out[experts] > 0;
}

void Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first, at::Tensor& rows) {
  const int64_t slots = SlotsOf(tokens, rows, row_of);
  TORCH_CHECK(tokens.scalar_type() == rows.scalar_type(), "rows are of the type of their tokens");
  const auto bytes = static_cast<int64_t>(tokens.itemsize()) * tokens.size(1);
  const auto* const from = static_cast<const char*>(tokens.const_data_ptr());
  auto* const to = static_cast<char*>(rows.mutable_data_ptr());
  const int64_t* const row = row_of.const_data_ptr<int64_t>();
  for (int64_t slot = 0; slot < row_of.numel(); ++slot) {
    const int64_t at = row[slot] - first;
    if (row[slot] >= 0 && at >= 0 && at < rows.size(0)) {
      std::memcpy(to + at * bytes, from + slot / slots * bytes, static_cast<size_t>(bytes));
    }
  }
}

void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add,
               at::Tensor& tokens) {
  const int64_t slots = SlotsOf(tokens, rows, row_of);
  const int64_t columns = tokens.size(1);
  const int64_t* const row = row_of.const_data_ptr<int64_t>();
  WithElementType(rows, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    const E* const from = ElementsOf<E>(rows);
    E* const to = MutableElementsOf<E>(tokens);
    std::array<T, kSums> sums;
    for (int64_t token = 0; token < tokens.size(0); ++token) {
      for (int64_t begin = 0; begin < columns; begin += kSums) {
        const int64_t elements = std::min(kSums, columns - begin);
        E* const out = to + token * columns + begin;
        bool empty = !add;
        if (add) {
          kernels.widen(out, elements, sums.data());
        }
        for (int64_t slot = token * slots; slot < (token + 1) * slots; ++slot) {
          const int64_t at = row[slot] - first;
          if (row[slot] < 0 || at < 0 || at >= rows.size(0)) {
            continue;
          }
          const E* const term = from + at * columns + begin;
          if (empty) {
            kernels.widen(term, elements, sums.data());
            empty = false;
          } else {
            kernels.accumulate(term, elements, sums.data());
          }
        }
        if (empty) {
          std::fill_n(sums.data(), elements, T{0});
        }
        kernels.narrow(sums.data(), elements, out);
      }
    }
  });
}

}  // namespace tandem::ops
