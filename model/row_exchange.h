// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace at {
class Tensor;
}

namespace tandem::comm {
class Communicator;
}

namespace tandem::model {

class BoundTensors;
struct DecoderShapes;

// Rows between the ranks that share experts: a chunk of as many for each, or where `counts` (int64 [P, P],
// from rank to rank) are defined exactly these. Private to model/.
class RowExchange {
 public:
  RowExchange(comm::Communicator& communicator, const at::Tensor& counts);

  // For a pass of a node that communicates, with its value "counts" where chunks are exact.
  static RowExchange Of(BoundTensors& in, const DecoderShapes& shapes);

  bool exact() const { return counts_ != nullptr; }

  // From the rank that sends tokens to the one that has their experts.
  void There(const at::Tensor& from, at::Tensor& to) const;
  void Back(const at::Tensor& from, at::Tensor& to) const;

 private:
  void Move(const at::Tensor& from, at::Tensor& to, bool back) const;

  comm::Communicator& communicator_;
  std::shared_ptr<const at::Tensor> counts_;  // null: chunks
};

}  // namespace tandem::model
