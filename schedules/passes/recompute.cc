// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/check.h"
#include "schedules/passes/passes.h"
#include "schedules/program/pass_operand.h"

namespace tandem::schedules {
namespace {

class Recomputer {
 public:
  Recomputer(const Outline& outline, const std::vector<bool>& recompute)
      : outline_(outline), recompute_(recompute), producers_(outline.values.size(), -1) {
    for (NodeId node = 0; node < static_cast<int>(outline.nodes.size()); ++node) {
      for (const ValueId value : outline.nodes[node].forward.writes) {
        producers_[value] = node;
        TANDEM_CHECK(!recompute[value] || outline.nodes[node].forward.parameter_gradients.empty(),
                     "a forward that writes gradients is not repeated");
        TANDEM_CHECK(!recompute[value] || outline.nodes[node].forward.state_carries.empty(),
                     "a forward that goes on from the microbatch before is not repeated");
      }
    }
    for (ValueId value = 0; value < static_cast<int>(outline.values.size()); ++value) {
      TANDEM_CHECK(
          !recompute[value] || (producers_[value] >= 0 && outline.values[value].kind != ValueKind::kHost),
          "what is recomputed is written by a forward, on the device");
    }
    for (const ValueId loss : outline.losses) {
      TANDEM_CHECK(!recompute[loss], "losses are reported as the forward wrote them");
    }
  }

  PassList Run(const PassList& passes) {
    for (const NodePass& pass : passes) {
      if (pass.opcode == Opcode::kBackwardInput || pass.opcode == Opcode::kBackwardWeight) {
        Emit(Chain(AccessOf(outline_.nodes[pass.target], pass.opcode), pass.microbatch), pass.microbatch);
      } else if (pass.opcode == Opcode::kRecompute) {
        if (GoesAhead(pass)) {
          Emit({pass.target}, pass.microbatch);
        }
        continue;
      }
      result_.push_back(pass);
    }
    return std::move(result_);
  }

 private:
  bool IsDone(NodeId node, int microbatch) const {
    const size_t i = microbatch * outline_.nodes.size() + node;
    return microbatch >= 0 && i < done_.size() && done_[i];
  }

  // Nodes to run again for `access`, in forward order; without those that have run again for the microbatch,
  // if it is not -1, and what only these need.
  std::vector<NodeId> Chain(const Access& access, int microbatch) const {
    std::vector<NodeId> chain;
    std::vector<const Access*> open = {&access};
    while (!open.empty()) {
      const Access* next = open.back();
      open.pop_back();
      for (const ValueId value : next->reads) {
        const NodeId node = producers_[value];
        if (recompute_[value] && !IsDone(node, microbatch) &&
            std::find(chain.begin(), chain.end(), node) == chain.end()) {
          chain.push_back(node);
          open.push_back(&outline_.nodes[node].forward);
        }
      }
    }
    std::sort(chain.begin(), chain.end());
    return chain;
  }

  void Emit(const std::vector<NodeId>& chain, int microbatch) {
    for (const NodeId node : chain) {
      result_.push_back({Opcode::kRecompute, node, microbatch});
      done_.resize(std::max(done_.size(), (microbatch + 1) * outline_.nodes.size()));
      done_[microbatch * outline_.nodes.size() + node] = true;
    }
  }

  bool GoesAhead(const NodePass& place) const {
    bool needed = false;
    bool communicates = false;
    for (const Node& node : outline_.nodes) {
      if (node.layer != outline_.nodes[place.target].layer) {
        continue;
      }
      for (const Access* access : {&node.backward_input, &node.backward_weight}) {
        for (const NodeId again : Chain(*access, -1)) {
          needed = needed || again == place.target;
          communicates = communicates || !outline_.nodes[again].group.empty();
        }
      }
    }
    return needed && communicates && !IsDone(place.target, place.microbatch);
  }

  const Outline& outline_;
  const std::vector<bool>& recompute_;
  std::vector<NodeId> producers_;
  std::vector<bool> done_;  // microbatch, node
  PassList result_;
};

}  // namespace

PassList InsertRecompute(const Outline& outline, const std::vector<bool>& recompute, const PassList& passes) {
  if (recompute.empty()) {
    PassList kept;
    std::copy_if(passes.begin(), passes.end(), std::back_inserter(kept),
                 [](const NodePass& pass) { return pass.opcode != Opcode::kRecompute; });
    return kept;
  }
  TANDEM_CHECK(recompute.size() == outline.values.size(), "recompute has an entry per value");
  return Recomputer(outline, recompute).Run(passes);
}

}  // namespace tandem::schedules
