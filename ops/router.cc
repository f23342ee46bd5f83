// SPDX-License-Identifier: Apache-2.0
#include "ops/router.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// Returns the tokens.
int64_t CheckLogits(const RouterConfig& config, const Array& logits, DeviceKind on) {
  CheckRouter(config);
  CheckExperts("a router", config.experts, on);
  CheckMatrix("logits", logits, logits.rows, config.experts, on);
  return logits.rows;
}

// The same, and what both passes of the losses take.
int64_t CheckSequences(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                       const Array& counts, Workspace work, DeviceKind on) {
  const int64_t tokens = CheckLogits(config, logits, on);
  Check(losses.sequence_length > 0 && tokens % losses.sequence_length == 0, tokens,
        " tokens are not whole sequences of ", losses.sequence_length);
  if (counts.defined()) {
    CheckElements("counts", counts, config.experts, on);
    Check(losses.sequence_length == tokens, "counts that are given are of all ", tokens, " tokens");
  }
  CheckWork("RouterLosses", work,
            RouterLossesWorkBytes(on, tokens, tokens / losses.sequence_length, config.experts));
  return tokens;
}

const double* CountsOf(const Array& counts) {
  return counts.defined() ? ElementsOf<double>(counts) : nullptr;
}

}  // namespace

void CheckRouter(const RouterConfig& config) {
  Check(config.top_k >= 1 && config.top_k <= config.experts, "a token has 1 to ", config.experts,
        " experts, not ", config.top_k);
  Check(config.top_k > 1 || !config.normalize,
        "the normalised score of one expert is 1 whatever the router says, so that it never learns");
  Check(config.groups >= 1 && config.experts % config.groups == 0, config.experts,
        " experts are not split evenly in ", config.groups, " groups");
  Check(config.groups_per_token >= 1 && config.groups_per_token <= config.groups, "a token uses 1 to ",
        config.groups, " groups, not ", config.groups_per_token);
  if (config.groups_per_token < config.groups) {
    const int64_t size = config.experts / config.groups;
    Check(config.best_of_group >= 1 && config.best_of_group <= size, "groups of ", size,
          " are compared by 1 to ", size, " of their experts, not ", config.best_of_group);
    Check(config.top_k <= config.groups_per_token * size, "a token has at most ",
          config.groups_per_token * size, " experts of ", config.groups_per_token, " groups of ", size,
          ", not ", config.top_k);
  }
}

Call Operations::Route(const RouterConfig& config, const Array& logits, const Array& bias,
                       const Array& chosen, const Array& probabilities) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckLogits(config, logits, on);
  CheckMatrix("chosen", chosen, tokens, config.top_k, on);
  CheckMatrix("probabilities", probabilities, tokens, config.top_k, on);
  if (bias.defined()) {
    CheckElements("bias", bias, config.experts, on);
    Check(config.score == RouterScore::kSigmoid, "a bias of experts needs sigmoid scores");
  }
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(RouteArgs<T>{.config = config,
                                      .logits = ElementsOf<T>(logits),
                                      .bias = ElementsOf<T>(bias),
                                      .tokens = tokens,
                                      .chosen = ElementsOf<int64_t>(chosen),
                                      .probabilities = ElementsOf<T>(probabilities)});
  });
}

Call Operations::RouteBackward(const RouterConfig& config, const Array& logits, const Array& ranked,
                               const Array& chosen, const Array& grad_probabilities,
                               const Array& grad_logits) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckLogits(config, logits, on);
  CheckMatrix("ranked", ranked, tokens, config.top_k, on);
  CheckMatrix("chosen", chosen, tokens, config.top_k, on);
  CheckMatrix("grad_probabilities", grad_probabilities, tokens, config.top_k, on);
  CheckMatrix("grad_logits", grad_logits, tokens, config.experts, on);
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(RouteBackwardArgs<T>{.config = config,
                                              .logits = ElementsOf<T>(logits),
                                              .ranked = ElementsOf<int64_t>(ranked),
                                              .chosen = ElementsOf<int64_t>(chosen),
                                              .grad_probabilities = ElementsOf<T>(grad_probabilities),
                                              .tokens = tokens,
                                              .grad_logits = ElementsOf<T>(grad_logits)});
  });
}

Call Operations::CountTokens(const Array& chosen, const Array& tokens, const Array& dropped) const {
  const DeviceKind on = kernels_.kind();
  CheckMatrix("chosen", chosen, chosen.rows, chosen.columns, on);
  CheckElements("tokens", tokens, tokens.elements(), on);
  CheckElements("dropped", dropped, 1, on);
  CheckExperts("CountTokens", tokens.elements(), on);
  return kernels_.Bind(CountTokensArgs{.chosen = ElementsOf<int64_t>(chosen),
                                       .slots = chosen.elements(),
                                       .experts = tokens.elements(),
                                       .tokens = ElementsOf<double>(tokens),
                                       .dropped = ElementsOf<double>(dropped)});
}

Call Operations::UpdateRouterBias(const Array& tokens, const Array& applies, double rate,
                                  const Array& bias) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("bias", bias, bias.elements(), on);
  CheckElements("applies", applies, 1, on);
  CheckRows("tokens", tokens, on);
  Check(tokens.columns == bias.elements(), "tokens must have ", bias.elements(), " columns, not ",
        tokens.shape());
  return WithStatisticsType(bias, [&]<typename T>(T) {
    return kernels_.Bind(UpdateRouterBiasArgs<T>{.tokens = ElementsOf<double>(tokens),
                                                 .ranks = tokens.rows,
                                                 .stride = tokens.row_stride,
                                                 .experts = bias.elements(),
                                                 .applies = ElementsOf<bool>(applies),
                                                 .rate = rate,
                                                 .bias = ElementsOf<T>(bias)});
  });
}

Call Operations::RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                              const Array& counts, const Array& values, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckSequences(config, losses, logits, counts, work, on);
  CheckElements("values", values, 2, on);
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(RouterLossesArgs<T>{config, losses, ElementsOf<T>(logits), tokens, CountsOf(counts),
                                             ElementsOf<double>(values), work});
  });
}

Call Operations::RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                                      const Array& logits, const Array& counts, const Array& targets,
                                      const Array& grad_logits, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckSequences(config, losses, logits, counts, work, on);
  CheckMatrix("grad_logits", grad_logits, tokens, config.experts, on);
  Check(!targets.defined() || targets.elements() == tokens, "there are ", tokens, " targets, not ",
        targets.elements());
  const Tokens ids = targets.defined() ? TokensOf(targets, on) : Tokens();
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(RouterLossesBackwardArgs<T>{config, losses, ElementsOf<T>(logits), tokens,
                                                     CountsOf(counts), ids, ElementsOf<T>(grad_logits),
                                                     work});
  });
}

Call Operations::CountLargest(const RouterConfig& config, const Array& logits, const Array& counts) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = CheckLogits(config, logits, on);
  CheckElements("counts", counts, config.experts, on);
  return WithStatisticsType(logits, [&]<typename T>(T) {
    return kernels_.Bind(
        CountLargestArgs<T>{config, ElementsOf<T>(logits), tokens, ElementsOf<double>(counts)});
  });
}

Call Operations::MeanCounts(const Array& by_rank, int64_t slots, bool continues, const Array& seen,
                            const Array& counts) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = counts.elements();
  CheckMatrix("by_rank", by_rank, by_rank.rows, experts, on);
  CheckElements("counts", counts, experts, on);
  CheckExperts("MeanCounts", experts, on);
  if (seen.defined()) {
    CheckElements("seen", seen, experts, on);
  }
  Check(seen.defined() || !continues, "there is nothing to continue");
  return kernels_.Bind(MeanCountsArgs{.by_rank = ElementsOf<double>(by_rank),
                                      .ranks = by_rank.rows,
                                      .experts = experts,
                                      .slots = slots,
                                      .continues = continues,
                                      .seen = seen.defined() ? ElementsOf<double>(seen) : nullptr,
                                      .counts = ElementsOf<double>(counts)});
}

}  // namespace tandem::ops
