// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"

namespace tandem::model::test {

// The decoder written plainly in double, for autograd. Hidden states are [T, H]; tensors inside attention are
// [B, heads, S, d].
class AutogradDecoder {
 public:
  // Parameters by Hugging Face name: those that collect gradients as they are, copies of the others, which
  // do. packs_documents: as BatchShape has it.
  AutogradDecoder(const DecoderConfig& config, const std::map<std::string, at::Tensor>& parameters,
                  bool packs_documents = false, bool has_targets = false);

  // From now on these experts see the tokens of the layer, whatever the scores are: a choice may differ where
  // scores differ by a rounding. chosen: int64 [T, k].
  void Choose(int layer, const at::Tensor& chosen) { chosen_[layer] = chosen; }

  // Chooses experts by their scores and this, from now on. bias: double [E].
  void SetBias(int layer, const at::Tensor& bias) { biases_[layer] = bias; }
  // How many tokens chose each expert of a sparse layer in the last call of Loss. double [E].
  const at::Tensor& Tokens(int layer) const { return counts_.at(layer); }

  // From now on the balance of the layer counts these, instead of the tokens' own. counts: double [E].
  void GiveCounts(int layer, const at::Tensor& counts) { given_counts_[layer] = counts; }
  // How many tokens had each expert among their largest scores in the last call of Loss. [E]
  const at::Tensor& Largest(int layer) const { return largest_.at(layer); }

  // tokens: the batch, int64 [B, BatchShape::columns]. The routers' own losses are not in it; RouterLosses
  // has those of all layers of the last call, times their coefficients and the share of targets that count.
  at::Tensor Loss(const at::Tensor& tokens) const;

  const at::Tensor& RouterLosses() const { return router_losses_; }
  // Of the last call too: the loss of each depth (model/depths.h), and their sum as it is trained.
  const std::vector<at::Tensor>& DepthLosses() const { return depth_losses_; }
  at::Tensor LossesOfDepths() const;

  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }

 private:
  // What each kind of node computes.
  at::Tensor Embedding(const at::Tensor& tokens) const;
  at::Tensor Attention(int layer, const at::Tensor& x, const at::Tensor& tokens) const;
  at::Tensor Mamba(int layer, const at::Tensor& x, const at::Tensor& tokens) const;
  at::Tensor GatedDelta(int layer, const at::Tensor& x, const at::Tensor& tokens) const;
  at::Tensor Mlp(int layer, const at::Tensor& x) const;
  at::Tensor Experts(int layer, const at::Tensor& x) const;  // a sparse layer's, with router and residual

  at::Tensor Layer(int layer, const at::Tensor& x, const at::Tensor& tokens) const;
  at::Tensor Depth(int depth, const at::Tensor& hidden, const at::Tensor& embedded,
                   const at::Tensor& tokens) const;
  // hidden: normalised.
  at::Tensor Head(const at::Tensor& hidden, const at::Tensor& tokens, int depth) const;
  std::string LayerPrefix(int layer) const;
  // By the name that most models have for it.
  const at::Tensor& Of(const std::string& name) const;
  at::Tensor Project(const at::Tensor& x, const std::string& name) const;
  at::Tensor Norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor Gated(const at::Tensor& x, const std::string& gate, const std::string& up,
                   const std::string& down) const;
  at::Tensor Rotate(const at::Tensor& x) const;  // whole heads
  int64_t LengthOf(const at::Tensor& tokens) const;
  int64_t StartOf(const at::Tensor& tokens, int64_t sequence, int64_t t) const;
  at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& tokens, int64_t window) const;
  at::Tensor LatentAttention(const std::string& prefix, const at::Tensor& normed,
                             const at::Tensor& tokens) const;
  at::Tensor Balance(int layer, const at::Tensor& shares, const at::Tensor& counted) const;
  at::Tensor Kept(const at::Tensor& chosen, const at::Tensor& weights) const;
  at::Tensor Chosen(int layer, const at::Tensor& scores) const;

  const DecoderConfig config_;
  const bool packs_documents_;
  const bool has_targets_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<int, at::Tensor> chosen_;  // by layer
  std::map<int, at::Tensor> biases_;  // by layer
  std::map<int, at::Tensor> given_counts_;
  mutable std::map<int, at::Tensor> counts_;
  mutable std::map<int, at::Tensor> largest_;
  mutable int64_t sequences_ = 1;  // of the last call of Loss
  mutable at::Tensor router_losses_;
  mutable std::vector<at::Tensor> depth_losses_;
  mutable std::string letter_;  // behind the layer's number: of a depth whose letters are numbered
};

}  // namespace tandem::model::test
