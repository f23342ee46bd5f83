// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include <ATen/core/Tensor.h>

#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// The rows of each expert of a [R, ...] matrix, beside its own rows of the weights.
class Groups {
 public:
  Groups(const at::Tensor& counts, int64_t rows, const at::Tensor& weight)
      : experts_(counts.numel()), counts_(counts.const_data_ptr<int64_t>()) {
    CheckElements("counts", counts, experts_);
    TORCH_CHECK(weight.dim() == 2 && experts_ > 0 && weight.size(0) % experts_ == 0, "the weights of ",
                experts_, " experts lie one after another, not ", weight.sizes());
    int64_t total = 0;
    for (int64_t expert = 0; expert < experts_; ++expert) {
      TORCH_CHECK(counts_[expert] >= 0, "expert ", expert, " has ", counts_[expert], " rows");
      total += counts_[expert];
    }
    TORCH_CHECK(total == rows, "the experts have ", total, " rows together, not ", rows);
    outputs_ = weight.size(0) / experts_;
  }

  // visit(first row, rows, weights' first row, weights' rows)
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    int64_t row = 0;
    for (int64_t expert = 0; expert < experts_; ++expert) {
      visit(row, counts_[expert], expert * outputs_, outputs_);
      row += counts_[expert];
    }
  }

 private:
  const int64_t experts_;
  const int64_t* const counts_;
  int64_t outputs_ = 0;
};

}  // namespace

void GroupedLinear(const Operations& ops, const at::Tensor& counts, const at::Tensor& x,
                   const at::Tensor& weight, at::Tensor& y, Workspace work) {
  Groups(counts, x.size(0), weight).ForEach([&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
    if (rows > 0) {
      at::Tensor out = y.narrow(0, row, rows);
      ops.Linear(x.narrow(0, row, rows), weight.narrow(0, first, outputs), /*residual=*/at::Tensor(), out,
                 work);
    }
  });
}

void GroupedLinearBackwardInput(const Operations& ops, const at::Tensor& counts, const at::Tensor& grad_y,
                                const at::Tensor& weight, at::Tensor& grad_x, Workspace work) {
  Groups(counts, grad_y.size(0), weight)
      .ForEach([&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
        if (rows > 0) {
          at::Tensor out = grad_x.narrow(0, row, rows);
          ops.LinearBackwardInput(grad_y.narrow(0, row, rows), weight.narrow(0, first, outputs), /*add=*/false, out, work);
        }
      });
}

void GroupedLinearBackwardWeight(const Operations& ops, const at::Tensor& counts, const at::Tensor& grad_y,
                                 const at::Tensor& x, bool add, at::Tensor& grad_weight, Workspace work) {
  Groups(counts, x.size(0), grad_weight)
      .ForEach([&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
        at::Tensor out = grad_weight.narrow(0, first, outputs);
        if (rows > 0) {
          ops.LinearBackwardWeight(grad_y.narrow(0, row, rows), x.narrow(0, row, rows), add, out, work);
        } else if (!add) {
          out.zero_();
        }
      });
}

}  // namespace tandem::ops
