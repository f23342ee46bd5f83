// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_linear.h"

#include <ATen/core/Tensor.h>

#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// The rows of each expert of a [R, ...] matrix, beside its own rows of the weights.
class Groups {
 public:
  Groups(const at::Tensor& begins, int64_t rows, const at::Tensor& weight)
      : experts_(begins.numel() - 1), begins_(begins.const_data_ptr<int64_t>()) {
    CheckElements("begins", begins, experts_ + 1);
    TORCH_CHECK(weight.dim() == 2 && experts_ > 0 && weight.size(0) % experts_ == 0, "the weights of ",
                experts_, " experts lie one after another, not ", weight.sizes());
    for (int64_t expert = 0; expert < experts_; ++expert) {
      TORCH_CHECK(begins_[expert] <= begins_[expert + 1], "expert ", expert, " has rows from ",
                  begins_[expert], " to ", begins_[expert + 1]);
    }
    TORCH_CHECK(begins_[0] == 0 && begins_[experts_] <= rows, "the experts have rows ", begins_[0], " to ",
                begins_[experts_], ", of ", rows);
    outputs_ = weight.size(0) / experts_;
  }

  // visit(first row, rows, weights' first row, weights' rows)
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (int64_t expert = 0; expert < experts_; ++expert) {
      visit(begins_[expert], begins_[expert + 1] - begins_[expert], expert * outputs_, outputs_);
    }
  }

 private:
  const int64_t experts_;
  const int64_t* const begins_;
  int64_t outputs_ = 0;
};

}  // namespace

void GroupedLinear(const Operations& ops, const at::Tensor& begins, const at::Tensor& x,
                   const at::Tensor& weight, at::Tensor& y, Workspace work) {
  Groups(begins, x.size(0), weight).ForEach([&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
    if (rows > 0) {
      at::Tensor out = y.narrow(0, row, rows);
      ops.Linear(x.narrow(0, row, rows), weight.narrow(0, first, outputs), /*residual=*/at::Tensor(), out,
                 work);
    }
  });
}

void GroupedLinearBackwardInput(const Operations& ops, const at::Tensor& begins, const at::Tensor& grad_y,
                                const at::Tensor& weight, at::Tensor& grad_x, Workspace work) {
  Groups(begins, grad_y.size(0), weight)
      .ForEach([&](int64_t row, int64_t rows, int64_t first, int64_t outputs) {
        if (rows > 0) {
          at::Tensor out = grad_x.narrow(0, row, rows);
          ops.LinearBackwardInput(grad_y.narrow(0, row, rows), weight.narrow(0, first, outputs),
                                  /*add=*/false, out, work);
        }
      });
}

void GroupedLinearBackwardWeight(const Operations& ops, const at::Tensor& begins, const at::Tensor& grad_y,
                                 const at::Tensor& x, bool add, at::Tensor& grad_weight, Workspace work) {
  Groups(begins, x.size(0), grad_weight)
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
