// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "schedules/build/schedule.h"

namespace tandem::schedules {
namespace {

// The nodes of one layer by what they do around the all-to-alls, in forward order. A dense layer has no
// dispatch and no combine.
struct LayerNodes {
  std::vector<NodeId> before;  // attention, router, permutation
  std::vector<NodeId> dispatch;
  std::vector<NodeId> inner;  // experts or mlp
  std::vector<NodeId> combine;
  std::vector<NodeId> after;
};

std::vector<NodeId>& PlaceOf(NodeKind kind, LayerNodes& layer) {
  switch (kind) {
    case NodeKind::kDispatch:
      return layer.dispatch;
    case NodeKind::kExperts:
    case NodeKind::kMlp:
      return layer.inner;
    case NodeKind::kCombine:
      return layer.combine;
    case NodeKind::kFinish:
      return layer.after;
    case NodeKind::kEmbedding:
    case NodeKind::kAttention:
    case NodeKind::kRoute:
    case NodeKind::kPermute:
    case NodeKind::kSizes:
    case NodeKind::kBalance:
    case NodeKind::kMamba:
    case NodeKind::kMtp:
    case NodeKind::kHead:
      break;
  }
  return layer.before;
}

class OverlapBuilder {
 public:
  OverlapBuilder(const Outline& outline, bool delay_weights)
      : outline_(outline), delay_weights_(delay_weights) {
    for (NodeId node = 0; node < static_cast<int>(outline.nodes.size()); ++node) {
      const int layer = outline.nodes[node].layer;
      if (layer < 0) {
        (layers_.empty() ? first_ : last_).push_back(node);
        continue;
      }
      if (layers_.empty() || layer != newest_layer_) {
        layers_.emplace_back();
        newest_layer_ = layer;
      }
      PlaceOf(outline.nodes[node].kind, layers_.back()).push_back(node);
    }
  }

  // The forward of one microbatch over the backward of another; -1: none.
  void Phase(int forward, int backward) {
    forward_ = forward;
    backward_ = backward;
    const int num_layers = static_cast<int>(layers_.size());
    Forward(first_);
    const LayerNodes none;
    const LayerNodes& top = num_layers > 0 ? layers_.back() : none;
    Recompute(top.before);
    Recompute(top.dispatch);
    Backward(last_);
    BackwardWeights(last_);
    Recompute(top.inner);
    Recompute(top.combine);
    Recompute(top.after);
    for (int pair = 0; pair < num_layers; ++pair) {
      const int layer = num_layers - 1 - pair;
      Pair(layers_[pair], layers_[layer], layer > 0 ? layers_[layer - 1] : none);
    }
    Forward(last_);
    Backward(first_);
    BackwardWeights(first_);
  }

  PassList Result() && { return std::move(passes_); }

 private:
  // Each communication runs beside compute of the other microbatch; the weight halves fill in behind the
  // input halves, which the chain of the backward waits for. r: the layer whose backward comes next.
  void Pair(const LayerNodes& f, const LayerNodes& b, const LayerNodes& r) {
    Backward(b.after);
    Backward(b.combine);
    Forward(f.before);
    Recompute(r.before);
    Backward(b.inner);
    Forward(f.dispatch);
    Recompute(r.dispatch);
    BackwardWeights(b.after);
    BackwardWeights(b.inner);
    Backward(b.dispatch);
    Forward(f.inner);
    Recompute(r.inner);
    Forward(f.combine);
    Recompute(r.combine);
    Backward(b.before);
    BackwardWeights(b.before);
    Forward(f.after);
    Recompute(r.after);
  }

  void Forward(const std::vector<NodeId>& nodes) {
    if (forward_ < 0) {
      return;
    }
    for (const NodeId node : nodes) {
      passes_.push_back({Opcode::kForward, node, forward_});
    }
  }

  // With the weight halves that are not delayed.
  void Backward(const std::vector<NodeId>& nodes) {
    if (backward_ < 0) {
      return;
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (HasBackward(outline_.nodes[*node])) {
        passes_.push_back({Opcode::kBackwardInput, *node, backward_});
      }
      if (!delay_weights_) {
        BackwardWeight(*node);
      }
    }
  }

  // Those that are delayed.
  void BackwardWeights(const std::vector<NodeId>& nodes) {
    if (backward_ < 0 || !delay_weights_) {
      return;
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      BackwardWeight(*node);
    }
  }

  void BackwardWeight(NodeId node) {
    if (HasWeightHalf(outline_.nodes[node])) {
      passes_.push_back({Opcode::kBackwardWeight, node, backward_});
    }
  }

  void Recompute(const std::vector<NodeId>& nodes) {
    if (backward_ < 0) {
      return;
    }
    for (const NodeId node : nodes) {
      passes_.push_back({Opcode::kRecompute, node, backward_});
    }
  }

  const Outline& outline_;
  const bool delay_weights_;
  std::vector<NodeId> first_;  // before the layers: embedding
  std::vector<LayerNodes> layers_;
  std::vector<NodeId> last_;  // behind them: head
  int newest_layer_ = -1;
  int forward_ = -1;
  int backward_ = -1;
  PassList passes_;
};

}  // namespace

PassList Overlapped(const Outline& outline, int num_microbatches, bool delay_weights) {
  OverlapBuilder builder(outline, delay_weights);
  for (int phase = 0; phase <= num_microbatches; ++phase) {
    builder.Phase(phase < num_microbatches ? phase : -1, phase - 1);
  }
  return std::move(builder).Result();
}

}  // namespace tandem::schedules
