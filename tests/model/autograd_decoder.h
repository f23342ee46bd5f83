// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "model/config.h"

namespace tandem::model::test {

// The decoder written plainly in double, for autograd. Hidden states are [T, H]; tensors inside attention are
// [B, heads, S, d].
class AutogradDecoder {
 public:
  // Copies of the parameters, by Hugging Face name, which collect gradients.
  AutogradDecoder(const DecoderConfig& config, const std::map<std::string, at::Tensor>& parameters);

  // tokens: int64 [B, S + 1].
  at::Tensor Loss(const at::Tensor& tokens) const;

  // What each kind of node computes.
  at::Tensor Embedding(const at::Tensor& tokens) const;
  at::Tensor Attention(int layer, const at::Tensor& x, int64_t sequences) const;
  at::Tensor Mlp(int layer, const at::Tensor& x) const;
  at::Tensor Head(const at::Tensor& x, const at::Tensor& tokens) const;

  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }

 private:
  at::Tensor Project(const at::Tensor& x, const std::string& name) const;
  at::Tensor Norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor Rotate(const at::Tensor& x) const;

  const DecoderConfig config_;
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace tandem::model::test
