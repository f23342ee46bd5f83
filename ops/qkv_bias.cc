// SPDX-License-Identifier: Apache-2.0
#include "ops/qkv_bias.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/row_work.h"

namespace tandem::ops {

Call Operations::QkvBias(const Array& query_bias, const Array& key_bias, const Array& value_bias,
                         const Array& qkv) const {
  const DeviceKind on = kernels_.kind();
  const int64_t query = query_bias.elements();
  const int64_t key = key_bias.elements();
  Check(key_bias.defined() == value_bias.defined(), "key_bias and value_bias must be given together");
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(QkvBiasArgs<E>{.tokens = qkv.rows,
                                        .query = query,
                                        .key = key,
                                        .query_bias = ElementsOf<E>("query_bias", query_bias, query, on),
                                        .key_bias = ElementsIfGiven<E>("key_bias", key_bias, key, on),
                                        .value_bias = ElementsIfGiven<E>("value_bias", value_bias, key, on),
                                        .qkv = MatrixOf<E>("qkv", qkv, qkv.rows, query + 2 * key, on)});
  });
}

Call Operations::QkvBiasBackward(const Array& grad_qkv, bool add, const Array& grad_query_bias,
                                 const Array& grad_key_bias, const Array& grad_value_bias,
                                 Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t rows = grad_qkv.rows;
  const int64_t query = grad_query_bias.elements();
  const int64_t key = grad_key_bias.elements();
  Check(grad_key_bias.defined() == grad_value_bias.defined(),
        "grad_key_bias and grad_value_bias must be given together");
  return WithElementType(grad_qkv, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    return kernels_.Bind(QkvBiasBackwardArgs<E>{
        .grad = MatrixOf<E>("grad_qkv", grad_qkv, rows, query + 2 * key, on),
        .tokens = rows,
        .query = query,
        .key = key,
        .add = add,
        .grad_query_bias = ElementsOf<T>("grad_query_bias", grad_query_bias, query, on),
        .grad_key_bias = ElementsIfGiven<T>("grad_key_bias", grad_key_bias, key, on),
        .grad_value_bias = ElementsIfGiven<T>("grad_value_bias", grad_value_bias, key, on),
        .work = Checked("QkvBiasBackward", work,
                        QkvBiasBackwardWorkBytes(on, rows, query + 2 * key, sizeof(E)))});
  });
}

}  // namespace tandem::ops
