// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace tandem::comm {
class Communicator;
}

namespace tandem::model {

// Rows between the ranks that share experts: a chunk of as many for each, or where `counts` (int64 [P, P],
// from rank to rank) are defined exactly these. Private to model/.
class RowExchange {
 public:
  RowExchange(comm::Communicator& communicator, at::Tensor counts)
      : communicator_(communicator), counts_(std::move(counts)) {}

  bool exact() const { return counts_.defined(); }

  // From the rank that sends tokens to the one that has their experts.
  void There(const at::Tensor& from, at::Tensor& to) const;
  void Back(const at::Tensor& from, at::Tensor& to) const;

 private:
  void Move(const at::Tensor& from, at::Tensor& to, bool back) const;

  comm::Communicator& communicator_;
  at::Tensor counts_;
};

}  // namespace tandem::model
