// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <vector>

#include "comm/communicator.h"
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "model/rows_beyond_room.h"

namespace tandem::model {
namespace {

// Rows between the ranks that share experts: a chunk of as many for each, or where `counts` (int64 [P, P],
// from rank to rank) is defined exactly these.
class RowExchange {
 public:
  // For a pass of a node that communicates, with its value "counts" where chunks are exact.
  RowExchange(BoundArrays& in, const DecoderShapes& shapes)
      : communicator_(in.Communicator()), counts_(shapes.exact_chunks ? in.Value("counts") : ops::Array()) {}

  bool exact() const { return counts_.defined(); }
  absl::Span<const int64_t> counts() const {
    return {static_cast<const int64_t*>(counts_.begin), static_cast<size_t>(counts_.rows * counts_.columns)};
  }

  // Both contiguous, with rows of as many bytes.
  void Move(const ops::Array& from, const ops::Array& to, bool back) const {
    if (!exact()) {
      communicator_.AllToAll(from.memory(), to.memory());
      return;
    }
    const int size = communicator_.size();
    const int64_t* const counts = static_cast<const int64_t*>(counts_.begin);
    std::vector<int64_t> own;     // rows to each rank that are this one's tokens
    std::vector<int64_t> others;  // rows from each rank that are its tokens
    for (int rank = 0; rank < size; ++rank) {
      own.push_back(counts[communicator_.rank() * size + rank]);
      others.push_back(counts[rank * size + communicator_.rank()]);
    }
    communicator_.AllToAllRows(from.memory(), back ? others : own, to.memory(), back ? own : others,
                               from.columns * ops::BytesOf(from.type));
  }

 private:
  comm::Communicator& communicator_;
  const ops::Array counts_;  // not defined: chunks
};

// From the rank that sends tokens to the one that has their experts, and back.
ops::Call There(const RowExchange& rows, const ops::Array& from, const ops::Array& to) {
  return [rows, from, to] { rows.Move(from, to, false); };
}
ops::Call Back(const RowExchange& rows, const ops::Array& from, const ops::Array& to) {
  return [rows, from, to] { rows.Move(from, to, true); };
}

class DispatchNode final : public DeclaredNode {
 public:
  explicit DispatchNode(const NodeContext& context)
      : DeclaredNode(context, kDispatch.declare(context.shapes)) {}

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
      calls.Add(ops_.Fill(0xFF, received_slots));  // -1 behind what is received
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
  explicit SizesNode(const NodeContext& context) : DeclaredNode(context, kSizes.declare(context.shapes)) {}

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
  explicit CombineNode(const NodeContext& context)
      : DeclaredNode(context, kCombine.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    return Back(RowExchange(in, s_), in.Value("made"), in.Value("returned"));
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    return There(RowExchange(in, s_), in.Gradient("returned"), in.OverwrittenGradient("made"));
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
