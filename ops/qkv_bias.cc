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
  CheckElements("query_bias", query_bias, query, on);
  CheckElements("key_bias", key_bias, key, on);
  CheckElements("value_bias", value_bias, key, on);
  CheckMatrix("qkv", qkv, qkv.rows, query + 2 * key, on);
  return WithElementType(qkv, [&]<typename E>(E) {
    return kernels_.Bind(QkvBiasArgs<E>{.tokens = qkv.rows,
                                        .query = query,
                                        .key = key,
                                        .query_bias = ElementsOf<E>(query_bias),
                                        .key_bias = ElementsOf<E>(key_bias),
                                        .value_bias = ElementsOf<E>(value_bias),
                                        .qkv = ElementsOf<E>(qkv)});
  });
}

Call Operations::QkvBiasBackward(const Array& grad_qkv, bool add, const Array& grad_query_bias,
                                 const Array& grad_key_bias, const Array& grad_value_bias,
                                 Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t query = grad_query_bias.elements();
  const int64_t key = grad_key_bias.elements();
  CheckElements("grad_query_bias", grad_query_bias, query, on);
  CheckElements("grad_key_bias", grad_key_bias, key, on);
  CheckElements("grad_value_bias", grad_value_bias, key, on);
  CheckMatrix("grad_qkv", grad_qkv, grad_qkv.rows, query + 2 * key, on);
  CheckWork("QkvBiasBackward", work,
            QkvBiasBackwardWorkBytes(on, grad_qkv.rows, grad_qkv.columns, BytesOf(grad_qkv.type)));
  return WithElementType(grad_qkv, [&]<typename E>(E) {
    return kernels_.Bind(QkvBiasBackwardArgs<E>{.grad = ElementsOf<E>(grad_qkv),
                                                .tokens = grad_qkv.rows,
                                                .query = query,
                                                .key = key,
                                                .add = add,
                                                .grad_query_bias = ElementsOf<Arithmetic<E>>(grad_query_bias),
                                                .grad_key_bias = ElementsOf<Arithmetic<E>>(grad_key_bias),
                                                .grad_value_bias = ElementsOf<Arithmetic<E>>(grad_value_bias),
                                                .work = work});
  });
}

}  // namespace tandem::ops
