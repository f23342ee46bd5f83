// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/autograd_model.h"

#include <torch/torch.h>  // the one file of the tests that needs autograd and the optimizer of LibTorch

#include "tests/model/autograd_decoder.h"

namespace tandem::parity {
namespace {

using torch::Tensor;

std::vector<double> ToVector(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous().view({-1});
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

std::map<std::string, Tensor> Parameters(const plan::JobPlan& plan,
                                         const std::map<std::string, std::vector<double>>& weights) {
  std::map<std::string, Tensor> parameters;
  for (const auto& layout : plan.layouts) {
    for (const auto& item : layout.parameters) {
      parameters[item.name] =
          torch::from_blob(const_cast<double*>(weights.at(item.name).data()), item.shape, torch::kDouble);
    }
  }
  return parameters;
}

}  // namespace

class AutogradModel::Impl {
 public:
  Impl(const plan::JobPlan& plan, const std::map<std::string, std::vector<double>>& weights)
      : batch_(plan.batch),
        clip_(plan.train.optimizer.clip_grad_norm),
        decoder_(plan.model, Parameters(plan, weights)) {
    std::vector<Tensor> decaying;
    std::vector<Tensor> constant;
    for (const auto& layout : plan.layouts) {
      for (const auto& item : layout.parameters) {
        (item.decays ? decaying : constant).push_back(decoder_.parameters().at(item.name));
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
    Tensor own =
        torch::zeros({}, torch::kDouble);  // the routers' losses, which are not reported as the model's
    for (const auto& tokens : microbatches) {
      const Tensor ids = torch::from_blob(const_cast<int64_t*>(tokens.data()),
                                          {batch_.sequences, batch_.sequence_length + 1}, torch::kLong);
      mean = mean + decoder_.Loss(ids) / static_cast<double>(microbatches.size());
      own = own + decoder_.RouterLosses() / static_cast<double>(microbatches.size());
    }
    (mean + own).backward();
    step.loss = mean.item<double>();
    std::vector<Tensor> all;
    for (const auto& [name, parameter] : decoder_.parameters()) {
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
    for (const auto& [name, parameter] : decoder_.parameters()) {
      weights[name] = ToVector(parameter);
    }
    return weights;
  }

 private:
  const model::BatchShape batch_;
  const double clip_;
  const model::test::AutogradDecoder decoder_;
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
