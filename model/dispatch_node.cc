// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <vector>

#include "comm/communicator.h"
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/expert_row_limit.h"
#include "model/node_kinds.h"
#include "ops/operations.h"

namespace tandem::model {
namespace {

// Exchanges rows between the ranks that share experts: chunks of one size for each or, if `counts` (int64
// [P, P], from rank to rank) is defined, exactly so many.
class RowExchange {
 public:
  // For a pass of a node that communicates; it has a value "counts" if chunks are exact.
  RowExchange(BoundArrays& in, const DecoderShapes& shapes)
      : communicator_(in.Communicator()), counts_(shapes.exact_chunks ? in.Value("counts") : ops::Array()) {}

  bool exact() const { return counts_.defined(); }
  absl::Span<const int64_t> counts() const {
    return {static_cast<const int64_t*>(counts_.begin), static_cast<size_t>(counts_.rows * counts_.columns)};
  }

  // Both must be contiguous, with rows of the same size in bytes.
  void Move(const ops::Array& from, const ops::Array& to, bool back) const {
    if (!exact()) {
      communicator_.AllToAll(from.memory(), to.memory());
      return;
    }
    const int size = communicator_.size();
    const int64_t* const counts = static_cast<const int64_t*>(counts_.begin);
    std::vector<int64_t> own;     // rows of this rank's tokens, to each rank
    std::vector<int64_t> others;  // rows of each rank's tokens, from it
    for (int rank = 0; rank < size; ++rank) {
      own.push_back(counts[communicator_.rank() * size + rank]);
      others.push_back(counts[rank * size + communicator_.rank()]);
    }
    communicator_.AllToAllRows(from.memory(), back ? others : own, to.memory(), back ? own : others,
                               from.columns * ops::BytesOf(from.type));
  }

 private:
  comm::Communicator& communicator_;
  const ops::Array counts_;  // undefined: chunks of one size
};

// Sends from the ranks of tokens to the ranks of their experts, and back.
ops::Call There(const RowExchange& rows, const ops::Array& from, const ops::Array& to) {
  return [rows, from, to] { rows.Move(from, to, false); };
}
ops::Call Back(const RowExchange& rows, const ops::Array& from, const ops::Array& to) {
  return [rows, from, to] { rows.Move(from, to, true); };
}

class DispatchNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array received_slots = in.Value("received_slots");
    const RowExchange rows(in, s_);
    ops::Calls calls;
    if (s_.seen < s_.all_rows()) {
      calls.Add([moe = s_.config.moe, tokens = s_.tokens, room = s_.seen, counts = rows.counts()] {
        CheckRoom(moe, tokens, room, counts);
      });
    }
    calls.Add(There(rows, in.Value("sent"), in.Value("received")));
    if (rows.exact()) {
      calls.Add(ops_.Fill(0xFF, received_slots));  // -1 after the received slots
    }
    calls.Add(There(rows, in.Value("sent_slots"), received_slots));
    calls.Add(There(rows, in.Value("sent_probabilities"), in.Value("received_probabilities")));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const RowExchange rows(in, s_);
    ops::Calls calls;
    calls.Add(
        Back(rows, in.Gradient("received_probabilities"), in.OverwrittenGradient("sent_probabilities")));
    calls.Add(Back(rows, in.Gradient("received"), in.OverwrittenGradient("sent")));
    return calls;
  }
};

class SizesNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const bool copies = ExchangedCounts(s_).on_host;
    const ops::Array counts = in.Value("counts");
    const ops::Array gathered = copies ? in.Scratch("gathered") : counts;
    ops::Calls calls;
    calls.Add([sent = in.Value("sent_counts").memory(), all = gathered.memory(),
               &communicator = in.Communicator()] { communicator.AllGather(sent, all); });
    if (copies) {
      calls.Add(ops_.Copy(gathered, counts));
    }
    return calls;
  }

  BoundPass BindBackward(BoundArrays&) const override { throw std::logic_error("sizes have no gradients"); }
};

class CombineNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    return Back(RowExchange(in, s_), in.Value("made"), in.Value("returned"));
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    return There(RowExchange(in, s_), in.Gradient("returned"), in.OverwrittenGradient("made"));
  }
};

class PermuteNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array chosen = in.Value("chosen");
    const ops::Array place = in.Scratch("place");
    const ops::Array counts = s_.exact_chunks ? in.Value("sent_counts") : in.Scratch("sent_counts");
    ops::Calls calls;
    calls.Add(ops_.PlanSends(chosen, s_.local_experts, s_.chunk_rows(), counts, place, in.Work("sort_work")));
    calls.Add(ops_.Permute(in.Value("normed"), place, /*first=*/0, in.Value("sent")));
    calls.Add(ops_.SendSlots(chosen, in.Value("probabilities"), place, s_.local_experts,
                             in.Value("sent_slots"), in.Value("sent_probabilities")));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array chosen = in.Value("chosen");
    const ops::Array place = in.Scratch("place");
    ops::Calls calls;
    calls.Add(ops_.PlanSends(chosen, s_.local_experts, s_.chunk_rows(), in.Scratch("sent_counts"), place,
                             in.Work("sort_work")));
    calls.Add(ops_.Unpermute(in.Gradient("sent"), place, /*first=*/0, in.AddsToGradient("normed"),
                             in.Gradient("normed")));
    calls.Add(ops_.CollectSlots(in.Gradient("sent_probabilities"), chosen, place, s_.local_experts,
                                in.AddsToGradient("probabilities"), in.Gradient("probabilities")));
    return calls;
  }
};

// If experts are not shared among ranks, a row of `made` is a token; otherwise `place` has the rows of each
// token.
class FinishNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array shared = s_.shared_inner > 0 ? in.Value("shared") : ops::Array();
    const ops::Array x = in.Value("x");
    const ops::Array made = in.Value("made");
    const ops::Array hidden = in.Value("hidden");
    ops::Calls calls;
    const ops::Array place = Plan(in, calls);
    if (!hidden.defined()) {
      return [] {};  // it was kept
    }
    calls.Add(place.defined() ? ops_.Unpermute(made, place, /*first=*/0, /*add=*/false, hidden)
                              : ops_.Copy(made, hidden));
    if (shared.defined()) {
      calls.Add(ops_.Add(shared, hidden));
    }
    calls.Add(ops_.Add(x, hidden));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array grad_x = in.Gradient("x");
    const ops::Array grad_made = in.OverwrittenGradient("made");
    ops::Calls calls;
    const ops::Array place = Plan(in, calls);
    calls.Add(place.defined() ? ops_.Permute(grad_hidden, place, /*first=*/0, grad_made)
                              : ops_.Copy(grad_hidden, grad_made));
    if (s_.shared_inner > 0) {
      calls.Add(ops_.Copy(grad_hidden, in.OverwrittenGradient("shared")));
    }
    calls.Add(in.AddsToGradient("x") ? ops_.Add(grad_hidden, grad_x) : ops_.Copy(grad_hidden, grad_x));
    return calls;
  }

  // Returns an undefined array if a row is a token.
  ops::Array Plan(BoundArrays& in, ops::Calls& calls) const {
    if (s_.expert_ranks == 1) {
      return {};
    }
    const ops::Array place = in.Scratch("place");
    calls.Add(ops_.PlanSends(in.Value("chosen"), s_.local_experts, s_.chunk_rows(), in.Scratch("sent_counts"),
                             place, in.Work("sort_work")));
    return place;
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

std::unique_ptr<Node> MakePermuteNode(const NodeContext& context) {
  return std::make_unique<PermuteNode>(context);
}

std::unique_ptr<Node> MakeFinishNode(const NodeContext& context) {
  return std::make_unique<FinishNode>(context);
}

}  // namespace tandem::model
