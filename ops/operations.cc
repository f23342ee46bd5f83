// SPDX-License-Identifier: Apache-2.0
#include "ops/operations.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"

namespace tandem::ops {

DeviceKind Operations::kind() const { return kernels_.kind(); }

std::string Operations::kernels_digest() const { return kernels_.digest(); }

Constant Operations::MakeConstant(const Array& host) const {
  CheckElements("a constant", host, host.elements(), DeviceKind::kCpu);
  const std::shared_ptr<const void> memory = kernels_.CopyOf(host.begin, host.bytes());
  return {memory, {memory.get(), host.type, kind(), host.rows, host.columns}};
}

Call Operations::Copy(const Array& from, const Array& to) const {
  CheckRows("what is copied", from, from.rows, from.columns, from.on);
  CheckRows("its copy", to, from.rows, from.columns, to.on);
  const bool between = from.on != kind() || to.on != kind();
  Check(!between || (from.type == to.type && from.contiguous() && to.contiguous()),
        "a copy between a GPU and the host needs contiguous elements of one type, not ", from.shape(),
        " and ", to.shape());
  Check(from.type == to.type || (BytesOf(from.type) > 1 && from.type != ElementKind::kInt64 &&
                                 to.type != ElementKind::kInt64 && BytesOf(to.type) > 1),
        "no conversion from ", from.shape(), " to ", to.shape());
  return kernels_.Bind(CopyArgs{.from = from.begin,
                                .from_type = from.type,
                                .from_stride = from.row_stride,
                                .rows = from.rows,
                                .columns = from.columns,
                                .to = to.begin,
                                .to_type = to.type,
                                .to_stride = to.row_stride,
                                .with_host = between});
}

Call Operations::Add(const Array& from, const Array& to) const {
  const int64_t elements = to.elements();
  return WithElementType(to, [&]<typename E>(E) {
    return kernels_.Bind(AddArgs<E>{.x = ElementsOf<E>("what is added", from, elements, kind()),
                                    .elements = elements,
                                    .y = ElementsOf<E>("the sum", to, elements, kind())});
  });
}

Call Operations::Fill(uint8_t byte, const Array& to) const {
  CheckElements("what is filled", to, to.elements(), kind());
  return kernels_.Bind(FillArgs{.byte = byte, .bytes = to.bytes(), .to = to.begin});
}

Call Operations::Linear(const Array& x, const Array& weight, const Array& residual, const Array& y,
                        Workspace work, double factor) const {
  return kernels_.Bind(ProductArgs{x, weight.Transposed(), residual, y, work, factor});
}

Call Operations::LinearBackwardInput(const Array& grad_y, const Array& weight, bool add, const Array& grad_x,
                                     Workspace work, double factor) const {
  return kernels_.Bind(ProductArgs{grad_y, weight, add ? grad_x : Array(), grad_x, work, factor});
}

Call Operations::LinearBackwardWeight(const Array& grad_y, const Array& x, bool add, const Array& grad_weight,
                                      Workspace work, double factor) const {
  return kernels_.Bind(
      ProductArgs{grad_y.Transposed(), x, add ? grad_weight : Array(), grad_weight, work, factor});
}

}  // namespace tandem::ops
