// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/autograd_model.h"

#include <torch/torch.h>  // the one file of the tests that needs autograd and the optimizer of LibTorch

#include "tests/model/autograd_decoder.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

using torch::Tensor;

std::vector<double> ToVector(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous().view({-1});
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

}  // namespace

class AutogradModel::Impl {
 public:
  Impl(const plan::JobPlan& plan, const std::map<std::string, std::vector<double>>& weights)
      : model_(plan.model), batch_(plan.batch), clip_(plan.train.optimizer.clip_grad_norm) {
    std::vector<Tensor> decaying;
    std::vector<Tensor> constant;
    for (const fsdp::ClassLayouts& layouts : plan.layouts) {
      for (const fsdp::Parameter& item : layouts[0].parameters) {
        const Tensor weight =
            torch::from_blob(const_cast<double*>(weights.at(item.name).data()), item.shape, torch::kDouble)
                .clone()
                .requires_grad_(true);
        parameters_[item.name] = weight;
        (item.decays ? decaying : constant).push_back(weight);
      }
    }
    decoder_ = std::make_unique<model::test::AutogradDecoder>(
        plan.model, parameters_, plan.batch.packs_documents, plan.batch.has_targets);
    const auto& o = plan.train.optimizer;
    const auto group = [&](const std::vector<Tensor>& parameters, double weight_decay) {
      auto options = std::make_unique<torch::optim::AdamWOptions>(o.schedule.peak);
      options->betas({o.beta1, o.beta2}).eps(o.epsilon).weight_decay(weight_decay);
      return torch::optim::OptimizerParamGroup(parameters, std::move(options));
    };
    optimizer_ = std::make_unique<torch::optim::AdamW>(
        std::vector<torch::optim::OptimizerParamGroup>{group(decaying, o.weight_decay), group(constant, 0)},
        torch::optim::AdamWOptions(o.schedule.peak));
  }

  Step TrainStep(const std::vector<std::vector<int64_t>>& microbatches, double learning_rate) {
    optimizer_->zero_grad();
    Step step;
    std::map<int, Tensor> tokens;  // of each expert, by layer
    Tensor mean = torch::zeros({}, torch::kDouble);
    Tensor own = torch::zeros(
        {}, torch::kDouble);  // losses of routers and depths: no part of the one that is reported
    double divisor = 0;
    for (const std::vector<int64_t>& microbatch : microbatches) {
      divisor +=
          1 - static_cast<double>(batch_.Uncounted(microbatch.data())) / static_cast<double>(batch_.tokens());
    }
    for (size_t i = 0; i < microbatches.size(); ++i) {
      if (i % model_.moe.data_ranks == 0 && model_.moe.balance_scope == model::BalanceScope::kGlobal) {
        CountRound(microbatches, i);
      }
      const model::test::AutogradDecoder& decoder = *decoder_;
      const Tensor ids = Ids(microbatches[i]);
      mean = mean + decoder.Loss(ids) / divisor;
      own = own + (decoder.RouterLosses() + decoder.LossesOfDepths()) / divisor;
      step.depth_losses.resize(decoder.DepthLosses().size());
      for (size_t depth = 0; depth < step.depth_losses.size(); ++depth) {
        step.depth_losses[depth] += decoder.DepthLosses()[depth].item<double>() / divisor;
      }
      for (int layer = 0; model_.moe.router_bias_update_rate > 0 && layer < model_.num_layers(); ++layer) {
        if (model_.IsSparse(layer)) {
          Tensor& sum = tokens.try_emplace(layer, torch::zeros_like(decoder.Tokens(layer))).first->second;
          sum = sum + decoder.Tokens(layer);
        }
      }
    }
    (mean + own).backward();
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
    UpdateBiases(tokens);
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
  Tensor Ids(const std::vector<int64_t>& microbatch) const {
    return torch::from_blob(const_cast<int64_t*>(microbatch.data()), {batch_.sequences, batch_.columns()},
                            torch::kLong);
  }

  // What the routers' balance counts of a microbatch, by the mean of those until the end of the round that
  // begins with `first`.
  void CountRound(const std::vector<std::vector<int64_t>>& microbatches, size_t first) {
    const torch::NoGradGuard no_gradients;
    model::test::AutogradDecoder& decoder = *decoder_;
    if (first == 0) {
      seen_.clear();
    }
    const size_t end = first + static_cast<size_t>(model_.moe.data_ranks);
    for (size_t i = first; i < end; ++i) {
      decoder.Loss(Ids(microbatches[i]));
      for (int layer = 0; layer < model_.num_layers(); ++layer) {
        if (model_.IsSparse(layer)) {
          Tensor& seen = seen_.try_emplace(layer, torch::zeros({}, torch::kDouble)).first->second;
          seen = seen + decoder.Largest(layer);
        }
      }
    }
    for (const auto& [layer, seen] : seen_) {
      decoder.GiveCounts(layer, seen / static_cast<double>(end));
    }
  }

  // As DeepSeek-V3: whose load is below the mean of the step is chosen more in the next one.
  void UpdateBiases(const std::map<int, Tensor>& tokens) {
    for (const auto& [layer, counted] : tokens) {
      Tensor& bias = biases_.try_emplace(layer, torch::zeros_like(counted)).first->second;
      bias = bias + model_.moe.router_bias_update_rate * torch::sign(counted.mean() - counted);
      decoder_->SetBias(layer, bias);
    }
  }

  const model::DecoderConfig model_;
  const model::BatchShape batch_;
  const double clip_;
  std::map<int, Tensor> biases_;  // by layer
  std::map<int, Tensor> seen_;    // tokens of each expert in the step's microbatches so far, by layer
  std::map<std::string, Tensor> parameters_;
  std::unique_ptr<model::test::AutogradDecoder> decoder_;  // of these parameters
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

AutogradModel::AutogradModel(const plan::JobPlan& plan,
                             const std::map<std::string, std::vector<double>>& weights)
    : impl_(std::make_unique<Impl>(plan, weights)) {}

AutogradModel::~AutogradModel() = default;

AutogradModel::Step AutogradModel::TrainStep(const std::vector<std::vector<int64_t>>& tokens,
                                             double learning_rate) {
  return impl_->TrainStep(tokens, learning_rate);
}

std::map<std::string, std::vector<double>> AutogradModel::weights() const { return impl_->weights(); }

}  // namespace tandem::parity
