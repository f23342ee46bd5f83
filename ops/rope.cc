// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::Rope(const Array& cosines, const Array& sines, int64_t heads, int64_t head_dim,
                      const Array& x, int sign) const {
  Check(sign == 1 || sign == -1, "a rotation has the sign 1 or -1, not ", sign);
  const DeviceKind on = kernels_.kind();
  const int64_t length = cosines.rows;
  const int64_t pairs = cosines.columns;
  Check(2 * pairs <= head_dim, "heads of ", head_dim, " dims have at most half as many pairs, not ", pairs);
  const bool whole = length > 0 ? x.rows % length == 0 : x.rows == 0;
  Check(whole && x.columns >= heads * head_dim, "x must have whole sequences of ", length,
        " rows and at least ", heads * head_dim, " columns, not ", x.shape());
  return WithElementType(x, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    return kernels_.Bind(RopeArgs<E>{.cosines = MatrixOf<T>("cosines", cosines, length, pairs, on),
                                     .sines = MatrixOf<T>("sines", sines, length, pairs, on),
                                     .sign = static_cast<T>(sign),
                                     .rows = x.rows,
                                     .length = length,
                                     .heads = heads,
                                     .head_dim = head_dim,
                                     .pairs = pairs,
                                     .row_stride = x.row_stride,
                                     .x = RowsOf<E>("x", x, x.rows, x.columns, on)});
  });
}

}  // namespace tandem::ops
