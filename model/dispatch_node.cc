// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <vector>

#include "comm/communicator.h"
#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Rows between the ranks that share experts: a chunk of as many for each, or where `counts` (int64 [P, P],
// from rank to rank) are defined exactly these.
class RowExchange {
 public:
  // For a pass of a node that communicates, with its value "counts" where chunks are exact.
  RowExchange(BoundTensors& in, const DecoderShapes& shapes)
      : communicator_(in.Communicator()), counts_(shapes.exact_chunks ? in.Value("counts") : at::Tensor()) {}

  bool exact() const { return counts_.defined(); }

  // From the rank that sends tokens to the one that has their experts.
  void There(const at::Tensor& from, at::Tensor& to) const { Move(from, to, /*back=*/false); }
  void Back(const at::Tensor& from, at::Tensor& to) const { Move(from, to, /*back=*/true); }

 private:
  void Move(const at::Tensor& from, at::Tensor& to, bool back) const {
    if (!exact()) {
      communicator_.AllToAll(from, to);
      return;
    }
    const int size = communicator_.size();
    const int64_t* const counts = counts_.const_data_ptr<int64_t>();
    std::vector<int64_t> own;     // rows to each rank that are this one's tokens
    std::vector<int64_t> others;  // rows from each rank that are its tokens
    for (int rank = 0; rank < size; ++rank) {
      own.push_back(counts[communicator_.rank() * size + rank]);
      others.push_back(counts[rank * size + communicator_.rank()]);
    }
    if (back) {
      communicator_.AllToAllRows(from, others, to, own);
    } else {
      communicator_.AllToAllRows(from, own, to, others);
    }
  }

  comm::Communicator& communicator_;
  const at::Tensor counts_;  // undefined: chunks
};

class DispatchNode final : public DeclaredNode {
 public:
  explicit DispatchNode(const NodeContext& context)
      : DeclaredNode(context, kDispatch.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return
        [sent = in.Value("sent"), slots = in.Value("sent_slots"),
         probabilities = in.Value("sent_probabilities"), received = in.Value("received"),
         received_slots = in.Value("received_slots"),
         received_probabilities = in.Value("received_probabilities"), rows = RowExchange(in, s_)]() mutable {
          rows.There(sent, received);
          if (rows.exact()) {
            received_slots.fill_(-1);  // behind what is received
          }
          rows.There(slots, received_slots);
          rows.There(probabilities, received_probabilities);
        };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [grad_received = in.Gradient("received"),
            grad_received_probabilities = in.Gradient("received_probabilities"),
            grad_sent = in.OverwrittenGradient("sent"),
            grad_sent_probabilities = in.OverwrittenGradient("sent_probabilities"),
            rows = RowExchange(in, s_)]() mutable {
      rows.Back(grad_received_probabilities, grad_sent_probabilities);
      rows.Back(grad_received, grad_sent);
    };
  }
};

class SizesNode final : public DeclaredNode {
 public:
  explicit SizesNode(const NodeContext& context) : DeclaredNode(context, kSizes.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    const bool copies = ExchangedCounts(s_).on_host;
    return [copies, sent = in.Value("sent_counts"), counts = in.Value("counts"),
            gathered = copies ? in.Scratch("gathered") : at::Tensor(),
            &communicator = in.Communicator()]() mutable {
      communicator.AllGather(sent, copies ? gathered : counts);
      if (copies) {
        counts.copy_(gathered, /*non_blocking=*/true);
      }
    };
  }

  BoundPass BindBackward(BoundTensors&) const override { throw std::logic_error("sizes have no gradients"); }
};

class CombineNode final : public DeclaredNode {
 public:
  explicit CombineNode(const NodeContext& context)
      : DeclaredNode(context, kCombine.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [made = in.Value("made"), returned = in.Value("returned"), rows = RowExchange(in, s_)]() mutable {
      rows.Back(made, returned);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [grad_returned = in.Gradient("returned"), grad_made = in.OverwrittenGradient("made"),
            rows = RowExchange(in, s_)]() mutable { rows.There(grad_returned, grad_made); };
  }
};

}  // namespace

std::unique_ptr<Node> MakeDispatchNode(const NodeContext& context) {
  return std::make_unique<DispatchNode>(context);
}

std::unique_ptr<Node> MakeSizesNode(const NodeContext& context) {
  return std::make_unique<SizesNode>(context);
}

std::unique_ptr<Node> MakeCombineNode(const NodeContext& context) {
  return std::make_unique<CombineNode>(context);
}

}  // namespace tandem::model
