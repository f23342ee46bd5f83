// SPDX-License-Identifier: Apache-2.0
#include "ops/array.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/array_checks.h"

namespace tandem::ops {

bool Array::contiguous() const {
  return elements() == 0 || ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride == columns));
}

std::string Array::shape() const {
  return absl::StrCat(ToText(type), " [", rows, ", ", columns, "] ", OnThe(on));
}

Array Array::Transposed() const {
  Array result = *this;
  std::swap(result.rows, result.columns);
  std::swap(result.row_stride, result.column_stride);
  return result;
}

Array Array::Rows(int64_t first, int64_t count) const {
  Check(first >= 0 && count >= 0 && first + count <= rows, "rows ", first, " to ", first + count, " of ",
        shape());
  Array result = *this;
  result.begin = static_cast<char*>(begin) + first * row_stride * BytesOf(type);
  result.rows = count;
  return result;
}

Array Array::Columns(int64_t first, int64_t count) const {
  return Transposed().Rows(first, count).Transposed();
}

Array Array::Reshaped(int64_t new_rows, int64_t new_columns) const {
  Check(contiguous() && elements() == new_rows * new_columns, shape(), " is not [", new_rows, ", ",
        new_columns, "]");
  return {begin, type, on, new_rows, new_columns};
}

}  // namespace tandem::ops
