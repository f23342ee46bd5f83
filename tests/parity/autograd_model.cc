// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/autograd_model.h"

#include <torch/torch.h>  // the one file of the tests that needs autograd and the optimizer of LibTorch

namespace tandem::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

std::vector<double> ToVector(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous().view({-1});
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

}  // namespace

class AutogradModel::Impl {
 public:
  Impl(const plan::JobPlan& plan, const std::map<std::string, std::vector<double>>& weights, int experts)
      : config_(plan.model),
        batch_(plan.batch),
        clip_(plan.train.optimizer.clip_grad_norm),
        experts_(experts) {
    std::vector<Tensor> decaying;
    std::vector<Tensor> constant;
    const auto add = [&](const fsdp::Parameter& item, const std::string& name) {
      const Tensor weight =
          torch::from_blob(const_cast<double*>(weights.at(name).data()), item.shape, torch::kDouble)
              .clone()
              .requires_grad_(true);
      parameters_[name] = weight;
      (item.decays ? decaying : constant).push_back(weight);
    };
    for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
      const bool expert = plan.outline.units[unit].group == schedules::UnitGroup::kExpert;
      for (const fsdp::Parameter& item : plan.layouts[unit].parameters) {
        for (int e = 0; e < (expert ? experts : 1); ++e) {
          add(item, expert ? OfExpert(item.name, e) : item.name);
        }
      }
    }
    const auto& o = plan.train.optimizer;
    const auto group = [&](const std::vector<Tensor>& parameters, double weight_decay) {
      auto options = std::make_unique<torch::optim::AdamWOptions>(o.learning_rate);
      options->betas({o.beta1, o.beta2}).eps(o.epsilon).weight_decay(weight_decay);
      return torch::optim::OptimizerParamGroup(parameters, std::move(options));
    };
    optimizer_ = std::make_unique<torch::optim::AdamW>(
        std::vector<torch::optim::OptimizerParamGroup>{group(decaying, o.weight_decay), group(constant, 0)},
        torch::optim::AdamWOptions(o.learning_rate));
  }

  Step TrainStep(const std::vector<std::vector<int64_t>>& microbatches, double learning_rate) {
    optimizer_->zero_grad();
    Step step;
    Tensor mean = torch::zeros({}, torch::kDouble);
    for (size_t i = 0; i < microbatches.size(); ++i) {
      expert_ = static_cast<int>(i) % experts_;
      const Tensor ids = torch::from_blob(const_cast<int64_t*>(microbatches[i].data()),
                                          {batch_.sequences, batch_.sequence_length + 1}, torch::kLong);
      mean = mean + Loss(ids) / static_cast<double>(microbatches.size());
    }
    mean.backward();
    step.loss = mean.item<double>();
    std::vector<Tensor> all;
    for (const auto& [name, parameter] : parameters_) {
      step.gradients[name] = ToVector(parameter.grad());
      all.push_back(parameter);
    }
    step.grad_norm = torch::nn::utils::clip_grad_norm_(all, clip_);
    for (auto& group : optimizer_->param_groups()) {
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(learning_rate);
    }
    optimizer_->step();
    return step;
  }

  std::map<std::string, std::vector<double>> weights() const {
    std::map<std::string, std::vector<double>> weights;
    for (const auto& [name, parameter] : parameters_) {
      weights[name] = ToVector(parameter);
    }
    return weights;
  }

 private:
  const Tensor& P(const std::string& name) const {
    const auto dense = parameters_.find(name);
    return dense == parameters_.end() ? parameters_.at(OfExpert(name, expert_)) : dense->second;
  }

  Tensor Norm(const Tensor& x, const Tensor& weight) const {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + config_.rms_norm_eps) * weight;
  }

  // [B, heads, S, D], the halves of the head rotated (Hugging Face's convention).
  Tensor Rope(const Tensor& x) const {
    const int64_t half = config_.head_dim / 2;
    const Tensor frequencies =
        torch::pow(torch::full({half}, config_.rope_theta, torch::kDouble),
                   torch::arange(half, torch::kDouble) * (-2.0 / static_cast<double>(config_.head_dim)));
    const Tensor angles = torch::outer(torch::arange(x.size(2), torch::kDouble), frequencies);
    const Tensor cos = angles.cos();
    const Tensor sin = angles.sin();
    const Tensor a = x.narrow(-1, 0, half);
    const Tensor b = x.narrow(-1, half, half);
    return torch::cat({a * cos - b * sin, b * cos + a * sin}, -1);
  }

  Tensor Attention(const Tensor& x, const std::string& prefix) const {
    const int64_t b = x.size(0), s = x.size(1), d = config_.head_dim;
    const auto heads = [&](const char* name, int64_t count) {
      return F::linear(x, P(prefix + name)).view({b, s, count, d}).transpose(1, 2);
    };
    const int64_t groups = config_.num_attention_heads / config_.num_key_value_heads;
    const Tensor q = Rope(heads("q_proj.weight", config_.num_attention_heads));
    const Tensor k = Rope(heads("k_proj.weight", config_.num_key_value_heads)).repeat_interleave(groups, 1);
    const Tensor v = heads("v_proj.weight", config_.num_key_value_heads).repeat_interleave(groups, 1);
    const Tensor mask = torch::ones({s, s}, torch::kBool).triu(1);
    const Tensor scores = (torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(d)))
                              .masked_fill(mask, -std::numeric_limits<double>::infinity());
    const Tensor context = torch::matmul(torch::softmax(scores, -1), v).transpose(1, 2).reshape({b, s, -1});
    return F::linear(context, P(prefix + "o_proj.weight"));
  }

  Tensor Loss(const Tensor& ids) const {
    const Tensor inputs = ids.narrow(1, 0, batch_.sequence_length);
    const Tensor targets = ids.narrow(1, 1, batch_.sequence_length);
    Tensor x = F::embedding(inputs, P("model.embed_tokens.weight"));
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      x = x + Attention(Norm(x, P(prefix + "input_layernorm.weight")), prefix + "self_attn.");
      const Tensor y = Norm(x, P(prefix + "post_attention_layernorm.weight"));
      const Tensor gated = torch::silu(F::linear(y, P(prefix + "mlp.gate_proj.weight"))) *
                           F::linear(y, P(prefix + "mlp.up_proj.weight"));
      x = x + F::linear(gated, P(prefix + "mlp.down_proj.weight"));
    }
    const std::string head = config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    const Tensor logits = F::linear(Norm(x, P("model.norm.weight")), P(head));
    return F::cross_entropy(logits.view({-1, config_.vocab_size}), targets.reshape({-1}));
  }

  const model::DecoderConfig config_;
  const model::BatchShape batch_;
  const double clip_;
  const int experts_;
  int expert_ = 0;  // of the microbatch
  std::map<std::string, Tensor> parameters_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

std::string OfExpert(const std::string& parameter, int expert) {
  return parameter + " of expert " + std::to_string(expert);
}

AutogradModel::AutogradModel(const plan::JobPlan& plan,
                             const std::map<std::string, std::vector<double>>& weights, int experts)
    : impl_(std::make_unique<Impl>(plan, weights, experts)) {}

AutogradModel::~AutogradModel() = default;

AutogradModel::Step AutogradModel::TrainStep(const std::vector<std::vector<int64_t>>& tokens,
                                             double learning_rate) {
  return impl_->TrainStep(tokens, learning_rate);
}

std::map<std::string, std::vector<double>> AutogradModel::weights() const { return impl_->weights(); }

}  // namespace tandem::parity
