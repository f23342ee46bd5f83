// SPDX-License-Identifier: Apache-2.0
#include "ops/router.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/sparse_operations.h"
#include "ops/sparse_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// Returns the tokens.
int64_t CheckLogits(const RouterConfig& config, const at::Tensor& logits, DeviceKind on) {
  CheckRouter(config);
  CheckExperts("a router", config.experts, on);
  CheckMatrix("logits", logits, logits.size(0), config.experts, on);
  return logits.size(0);
}

// The same, and what both passes of the losses take.
int64_t CheckSequences(const RouterConfig& config, const RouterLossConfig& losses, const at::Tensor& logits,
                       const at::Tensor& counts, Workspace work, DeviceKind on) {
  const int64_t tokens = CheckLogits(config, logits, on);
  TORCH_CHECK(losses.sequence_length > 0 && tokens % losses.sequence_length == 0, tokens,
              " tokens are not whole sequences of ", losses.sequence_length);
  if (counts.defined()) {
    CheckElements("counts", counts, config.experts, on);
    TORCH_CHECK(losses.sequence_length == tokens, "counts that are given are of all ", tokens, " tokens");
  }
  CheckWork("RouterLosses", work,
            RouterLossesWorkBytes(on, tokens, tokens / losses.sequence_length, config.experts));
  return tokens;
}

const double* CountsOf(const at::Tensor& counts) {
  return counts.defined() ? counts.const_data_ptr<double>() : nullptr;
}

}  // namespace

void CheckRouter(const RouterConfig& config) {
  TORCH_CHECK(config.top_k >= 1 && config.top_k <= config.experts, "a token has 1 to ", config.experts,
              " experts, not ", config.top_k);
  TORCH_CHECK(config.top_k > 1 || !config.normalize,
              "the normalised score of one expert is 1 whatever the router says, so that it never learns");
  TORCH_CHECK(config.groups >= 1 && config.experts % config.groups == 0, config.experts,
              " experts are not split evenly in ", config.groups, " groups");
  TORCH_CHECK(config.groups_per_token >= 1 && config.groups_per_token <= config.groups, "a token uses 1 to ",
              config.groups, " groups, not ", config.groups_per_token);
  if (config.groups_per_token < config.groups) {
    const int64_t best = config.top_k / config.groups_per_token;
    TORCH_CHECK(config.top_k % config.groups_per_token == 0 && best <= config.experts / config.groups,
                config.top_k, " experts are not split evenly over ", config.groups_per_token, " groups of ",
                config.experts / config.groups);
  }
}

void SparseOperations::Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias,
                             at::Tensor& chosen, at::Tensor& probabilities) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckLogits(config, logits, on);
  CheckMatrix("chosen", chosen, tokens, config.top_k, on);
  CheckMatrix("probabilities", probabilities, tokens, config.top_k, on);
  if (bias.defined()) {
    CheckElements("bias", bias, config.experts, on);
    TORCH_CHECK(config.score == RouterScore::kSigmoid, "a bias of experts needs sigmoid scores");
  }
  WithStatisticsType(logits, [&]<typename T>(T) {
    kernels_.Run(RouteArgs<T>{.config = config,
                              .logits = ElementsOf<T>(logits),
                              .bias = bias.defined() ? ElementsOf<T>(bias) : nullptr,
                              .tokens = tokens,
                              .chosen = chosen.mutable_data_ptr<int64_t>(),
                              .probabilities = MutableElementsOf<T>(probabilities)});
  });
}

void SparseOperations::RouteBackward(const RouterConfig& config, const at::Tensor& logits,
                                     const at::Tensor& ranked, const at::Tensor& chosen,
                                     const at::Tensor& grad_probabilities, at::Tensor& grad_logits) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckLogits(config, logits, on);
  CheckMatrix("ranked", ranked, tokens, config.top_k, on);
  CheckMatrix("chosen", chosen, tokens, config.top_k, on);
  CheckMatrix("grad_probabilities", grad_probabilities, tokens, config.top_k, on);
  CheckMatrix("grad_logits", grad_logits, tokens, config.experts, on);
  WithStatisticsType(logits, [&]<typename T>(T) {
    kernels_.Run(RouteBackwardArgs<T>{.config = config,
                                      .logits = ElementsOf<T>(logits),
                                      .ranked = ranked.const_data_ptr<int64_t>(),
                                      .chosen = chosen.const_data_ptr<int64_t>(),
                                      .grad_probabilities = ElementsOf<T>(grad_probabilities),
                                      .tokens = tokens,
                                      .grad_logits = MutableElementsOf<T>(grad_logits)});
  });
}

void SparseOperations::CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped) const {
  const DeviceKind on = kernels_.kind();
  CheckMatrix("chosen", chosen, chosen.size(0), chosen.size(1), on);
  CheckElements("tokens", tokens, tokens.numel(), on);
  CheckElements("dropped", dropped, 1, on);
  CheckExperts("CountTokens", tokens.numel(), on);
  kernels_.Run(CountTokensArgs{.chosen = chosen.const_data_ptr<int64_t>(),
                               .slots = chosen.numel(),
                               .experts = tokens.numel(),
                               .tokens = tokens.mutable_data_ptr<double>(),
                               .dropped = dropped.mutable_data_ptr<double>()});
}

void SparseOperations::UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate,
                                        at::Tensor& bias) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("bias", bias, bias.numel(), on);
  CheckElements("applies", applies, 1, on);
  CheckRows("tokens", tokens, on);
  TORCH_CHECK(tokens.size(1) == bias.numel(), "tokens must have ", bias.numel(), " columns, not ",
              tokens.sizes());
  WithStatisticsType(bias, [&]<typename T>(T) {
    kernels_.Run(UpdateRouterBiasArgs<T>{.tokens = tokens.const_data_ptr<double>(),
                                         .ranks = tokens.size(0),
                                         .stride = tokens.stride(0),
                                         .experts = bias.numel(),
                                         .applies = applies.const_data_ptr<bool>(),
                                         .rate = rate,
                                         .bias = MutableElementsOf<T>(bias)});
  });
}

void SparseOperations::RouterLosses(const RouterConfig& config, const RouterLossConfig& losses,
                                    const at::Tensor& logits, const at::Tensor& counts, at::Tensor& values,
                                    Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckSequences(config, losses, logits, counts, work, on);
  CheckElements("values", values, 2, on);
  WithStatisticsType(logits, [&]<typename T>(T) {
    kernels_.Run(RouterLossesArgs<T>{config, losses, ElementsOf<T>(logits), tokens, CountsOf(counts),
                                     values.mutable_data_ptr<double>(), work});
  });
}

void SparseOperations::RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                                            const at::Tensor& logits, const at::Tensor& counts,
                                            at::Tensor& grad_logits, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckSequences(config, losses, logits, counts, work, on);
  CheckMatrix("grad_logits", grad_logits, tokens, config.experts, on);
  WithStatisticsType(logits, [&]<typename T>(T) {
    kernels_.Run(RouterLossesBackwardArgs<T>{config, losses, ElementsOf<T>(logits), tokens, CountsOf(counts),
                                             MutableElementsOf<T>(grad_logits), work});
  });
}

void SparseOperations::CountLargest(const RouterConfig& config, const at::Tensor& logits,
                                    at::Tensor& counts) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckLogits(config, logits, on);
  CheckElements("counts", counts, config.experts, on);
  WithStatisticsType(logits, [&]<typename T>(T) {
    kernels_.Run(
        CountLargestArgs<T>{config, ElementsOf<T>(logits), tokens, counts.mutable_data_ptr<double>()});
  });
}

void SparseOperations::MeanCounts(const at::Tensor& by_rank, int64_t slots, bool continues, at::Tensor& seen,
                                  at::Tensor& counts) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = counts.numel();
  CheckMatrix("by_rank", by_rank, by_rank.size(0), experts, on);
  CheckElements("counts", counts, experts, on);
  CheckExperts("MeanCounts", experts, on);
  if (seen.defined()) {
    CheckElements("seen", seen, experts, on);
  }
  TORCH_CHECK(seen.defined() || !continues, "there is nothing to continue");
  kernels_.Run(MeanCountsArgs{.by_rank = by_rank.const_data_ptr<double>(),
                              .ranks = by_rank.size(0),
                              .experts = experts,
                              .slots = slots,
                              .continues = continues,
                              .seen = seen.defined() ? seen.mutable_data_ptr<double>() : nullptr,
                              .counts = counts.mutable_data_ptr<double>()});
}

}  // namespace tandem::ops
