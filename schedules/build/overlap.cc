// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "schedules/build/schedule.h"

namespace tandem::schedules {
namespace {

// The nodes of one layer by their places, in forward order.
class LayerNodes {
 public:
  std::vector<NodeId>& operator[](Place place) { return nodes_[static_cast<int>(place)]; }
  const std::vector<NodeId>& operator[](Place place) const { return nodes_[static_cast<int>(place)]; }

 private:
  std::array<std::vector<NodeId>, kNumPlaces> nodes_;
};

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
      layers_.back()[outline.nodes[node].place].push_back(node);
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
    Recompute(top[Place::kBefore]);
    Recompute(top[Place::kDispatch]);
    Backward(last_);
    BackwardWeights(last_);
    Recompute(top[Place::kInner]);
    Recompute(top[Place::kCombine]);
    Recompute(top[Place::kAfter]);
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
  // Layer f forward (F) of one microbatch over layer b backward (B; W: its weight halves, delayed) of the
  // other. A row is a stream, and what is in a column can run at the same time:
  //
  //   compute   B after  F before   B inner     W after, inner  F inner  B before, W before  F after
  //   dispatch           B combine  F dispatch  B dispatch               F combine
  //
  // Each communication runs beside compute of the other microbatch; the weight halves fill in behind the
  // input halves, which the chain of the backward waits for. r: the layer whose backward comes next, which
  // is recomputed beside f's forward.
  void Pair(const LayerNodes& f, const LayerNodes& b, const LayerNodes& r) {
    Backward(b[Place::kAfter]);
    Backward(b[Place::kCombine]);
    Forward(f[Place::kBefore]);
    Recompute(r[Place::kBefore]);
    Backward(b[Place::kInner]);
    Forward(f[Place::kDispatch]);
    Recompute(r[Place::kDispatch]);
    BackwardWeights(b[Place::kAfter]);
    BackwardWeights(b[Place::kInner]);
    Backward(b[Place::kDispatch]);
    Forward(f[Place::kInner]);
    Recompute(r[Place::kInner]);
    Forward(f[Place::kCombine]);
    Recompute(r[Place::kCombine]);
    Backward(b[Place::kBefore]);
    BackwardWeights(b[Place::kBefore]);
    Forward(f[Place::kAfter]);
    Recompute(r[Place::kAfter]);
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
