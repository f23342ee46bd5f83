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

Call Operations::Bias(const Array& bias, const Array& rows) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("bias", bias, bias.elements(), on);
  CheckMatrix("rows", rows, rows.rows, bias.elements(), on);
  return WithElementType(rows, [&]<typename E>(E) {
    return kernels_.Bind(QkvBiasArgs<E>{.tokens = rows.rows,
                                        .query = bias.elements(),
                                        .key = 0,
                                        .query_bias = ElementsOf<E>(bias),
                                        .key_bias = nullptr,
                                        .value_bias = nullptr,
                                        .qkv = ElementsOf<E>(rows)});
  });
}

Call Operations::BiasBackward(const Array& grad, bool add, const Array& grad_bias, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("grad_bias", grad_bias, grad_bias.elements(), on);
  CheckMatrix("grad", grad, grad.rows, grad_bias.elements(), on);
  CheckWork("BiasBackward", work, QkvBiasBackwardWorkBytes(on, grad.rows, grad.columns, BytesOf(grad.type)));
  return WithElementType(grad, [&]<typename E>(E) {
    return kernels_.Bind(QkvBiasBackwardArgs<E>{.grad = ElementsOf<E>(grad),
                                                .tokens = grad.rows,
                                                .query = grad_bias.elements(),
                                                .key = 0,
                                                .add = add,
                                                .grad_query_bias = ElementsOf<Arithmetic<E>>(grad_bias),
                                                .grad_key_bias = nullptr,
                                                .grad_value_bias = nullptr,
                                                .work = work});
  });
}

}  // namespace tandem::ops
