// SPDX-License-Identifier: Apache-2.0
#include "ops/router.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

template <typename T>
T* LogitsOf(const RouterConfig& config, const Array& logits, DeviceKind on) {
  CheckRouter(config);
  CheckExperts("a router", config.experts, on);
  return MatrixOf<T>("logits", logits, logits.rows, config.experts, on);
}

Workspace CheckedLosses(const RouterConfig& config, const RouterLossConfig& losses, int64_t tokens,
                        const Array& counts, Workspace work, DeviceKind on) {
  Check(losses.sequence_length > 0 && tokens % losses.sequence_length == 0, tokens,
        " tokens are not whole sequences of ", losses.sequence_length);
  Check(!counts.defined() || losses.sequence_length == tokens, "with counts, sequence_length must be ",
        tokens, ", the number of all tokens, not ", losses.sequence_length);
  return Checked("RouterLosses", work,
                 RouterLossesWorkBytes(on, tokens, tokens / losses.sequence_length, config.experts));
}

}  // namespace

void CheckRouter(const RouterConfig& config) {
  Check(config.top_k >= 1 && config.top_k <= config.experts, "top_k must be from 1 to ", config.experts,
        ", not ", config.top_k);
  Check(
      config.top_k > 1 || !config.normalize,
      "normalize needs a top_k of at least 2: the normalised score of one expert is always 1, so the router "
      "would not learn");
  Check(config.groups >= 1 && config.experts % config.groups == 0, config.groups, " groups do not divide ",
        config.experts, " experts");
  Check(config.groups_per_token >= 1 && config.groups_per_token <= config.groups,
        "groups_per_token must be from 1 to ", config.groups, ", not ", config.groups_per_token);
  if (config.groups_per_token < config.groups) {
    const int64_t size = config.experts / config.groups;
    Check(config.best_of_group >= 1 && config.best_of_group <= size, "best_of_group must be from 1 to ", size,
          ", not ", config.best_of_group);
    Check(config.top_k <= config.groups_per_token * size, "a token has at most ",
          config.groups_per_token * size, " experts of ", config.groups_per_token, " groups of ", size,
          ", not ", config.top_k);
  }
}

Call Operations::Route(const RouterConfig& config, const Array& logits, const Array& bias,
                       const Array& chosen, const Array& probabilities) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = logits.rows;
  Check(!bias.defined() || config.score == RouterScore::kSigmoid, "a bias of experts needs sigmoid scores");
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(
        RouteArgs<T>{.config = config,
                     .logits = LogitsOf<T>(config, logits, on),
                     .bias = ElementsIfGiven<T>("bias", bias, config.experts, on),
                     .tokens = tokens,
                     .chosen = MatrixOf<int64_t>("chosen", chosen, tokens, config.top_k, on),
                     .probabilities = MatrixOf<T>("probabilities", probabilities, tokens, config.top_k, on)});
  });
}

Call Operations::RouteBackward(const RouterConfig& config, const Array& logits, const Array& ranked,
                               const Array& chosen, const Array& grad_probabilities,
                               const Array& grad_logits) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = logits.rows;
  const int64_t k = config.top_k;
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(RouteBackwardArgs<T>{
        .config = config,
        .logits = LogitsOf<T>(config, logits, on),
        .ranked = MatrixOf<int64_t>("ranked", ranked, tokens, k, on),
        .chosen = MatrixOf<int64_t>("chosen", chosen, tokens, k, on),
        .grad_probabilities = MatrixOf<T>("grad_probabilities", grad_probabilities, tokens, k, on),
        .tokens = tokens,
        .grad_logits = MatrixOf<T>("grad_logits", grad_logits, tokens, config.experts, on)});
  });
}

Call Operations::CountTokens(const Array& chosen, const Array& tokens, const Array& dropped) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = tokens.elements();
  CheckExperts("CountTokens", experts, on);
  return kernels_.Bind(
      CountTokensArgs{.chosen = MatrixOf<int64_t>("chosen", chosen, chosen.rows, chosen.columns, on),
                      .slots = chosen.elements(),
                      .experts = experts,
                      .tokens = ElementsOf<double>("tokens", tokens, experts, on),
                      .dropped = ElementsOf<double>("dropped", dropped, 1, on)});
}

Call Operations::UpdateRouterBias(const Array& tokens, const Array& applies, double rate,
                                  const Array& bias) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = bias.elements();
  return WithStatisticsType(bias, [&]<typename T>(T) {
    return kernels_.Bind(
        UpdateRouterBiasArgs<T>{.tokens = RowsOf<double>("tokens", tokens, tokens.rows, experts, on),
                                .ranks = tokens.rows,
                                .stride = tokens.row_stride,
                                .experts = experts,
                                .applies = ElementsOf<bool>("applies", applies, 1, on),
                                .rate = rate,
                                .bias = ElementsOf<T>("bias", bias, experts, on)});
  });
}

Call Operations::RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                              const Array& counts, const Array& values, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(
        RouterLossesArgs<T>{.config = config,
                            .losses = losses,
                            .logits = LogitsOf<T>(config, logits, on),
                            .tokens = logits.rows,
                            .counts = ElementsIfGiven<double>("counts", counts, config.experts, on),
                            .values = ElementsOf<double>("values", values, 2, on),
                            .work = CheckedLosses(config, losses, logits.rows, counts, work, on)});
  });
}

Call Operations::RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                                      const Array& logits, const Array& counts, const Array& targets,
                                      const Array& grad_logits, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = logits.rows;
  Check(!targets.defined() || targets.elements() == tokens, "there must be ", tokens, " targets, not ",
        targets.elements());
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(RouterLossesBackwardArgs<T>{
        .config = config,
        .losses = losses,
        .logits = LogitsOf<T>(config, logits, on),
        .tokens = tokens,
        .counts = ElementsIfGiven<double>("counts", counts, config.experts, on),
        .targets = targets.defined() ? TokensOf(targets, on) : Tokens(),
        .grad_logits = MatrixOf<T>("grad_logits", grad_logits, tokens, config.experts, on),
        .work = CheckedLosses(config, losses, tokens, counts, work, on)});
  });
}

Call Operations::CountLargest(const RouterConfig& config, const Array& logits, const Array& counts) const {
  const DeviceKind on = kernels_.kind();
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(CountLargestArgs<T>{config, LogitsOf<T>(config, logits, on), logits.rows,
                                             ElementsOf<double>("counts", counts, config.experts, on)});
  });
}

Call Operations::MeanCounts(const Array& by_rank, int64_t slots, bool continues, const Array& seen,
                            const Array& counts) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = counts.elements();
  CheckExperts("MeanCounts", experts, on);
  Check(seen.defined() || !continues, "MeanCounts can continue only if `seen` is given");
  return kernels_.Bind(
      MeanCountsArgs{.by_rank = MatrixOf<double>("by_rank", by_rank, by_rank.rows, experts, on),
                     .ranks = by_rank.rows,
                     .experts = experts,
                     .slots = slots,
                     .continues = continues,
                     .seen = ElementsIfGiven<double>("seen", seen, experts, on),
                     .counts = ElementsOf<double>("counts", counts, experts, on)});
}

}  // namespace tandem::ops
