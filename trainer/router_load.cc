// SPDX-License-Identifier: Apache-2.0
#include "trainer/router_load.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "model/decoder_shapes.h"
#include "plan/job_plan.h"

namespace tandem::trainer {
namespace {

constexpr int kDoublesPerMicrobatch = 2;

int64_t NumDoubles(const RouterLoad& load) {
  size_t doubles = load.tokens.size() + 1 + kDoublesPerMicrobatch * load.losses.size();
  for (const std::vector<double>& rows : load.rows) {
    doubles += rows.size();
  }
  return static_cast<int64_t>(doubles);
}

// `rows_at`: where this layer's rows begin in each rank's doubles.
int64_t FurtherPasses(const RouterLoad& shape, const RankSharing& sharing,
                      const std::vector<const double*>& of_ranks, int64_t rows_at) {
  int64_t passes = 0;
  for (const std::vector<int>& group : sharing.experts) {
    for (size_t i = 0; i < shape.rows.size() * group.size(); ++i) {  // by microbatch and receiver
      int64_t rows = 0;
      for (const int sender : group) {
        rows += static_cast<int64_t>(of_ranks[sender][rows_at + static_cast<int64_t>(i)]);
      }
      passes += std::max<int64_t>(rows - 1, 0) / sharing.rows_at_a_time;
    }
  }
  return passes;
}

// `of_ranks`: where each rank's doubles of this layer begin.
v1::ExpertLoad FoldLayer(const RouterLoad& shape, const RankSharing& sharing,
                         const std::vector<const double*>& of_ranks) {
  v1::ExpertLoad load;
  load.set_layer(shape.layer);
  load.mutable_tokens()->Resize(static_cast<int>(shape.tokens.size()), 0);
  for (const double* in : of_ranks) {
    for (int64_t& tokens : *load.mutable_tokens()) {
      tokens += static_cast<int64_t>(*in++);
    }
    load.set_dropped(load.dropped() + static_cast<int64_t>(*in));
  }
  const auto losses_at = static_cast<int64_t>(shape.tokens.size()) + 1;
  const auto microbatches = static_cast<int64_t>(shape.losses.size() * sharing.losses.size());
  const auto mean = [&](int number) {  // 0: balance, 1: z
    return SumOfMicrobatches(sharing.losses, microbatches,
                             [&](int rank, int64_t round) {
                               return of_ranks[rank][losses_at + round * kDoublesPerMicrobatch + number];
                             }) /
           static_cast<double>(microbatches);
  };
  load.set_balance_loss(mean(0));
  load.set_z_loss(mean(1));
  const auto rows_at = losses_at + kDoublesPerMicrobatch * static_cast<int64_t>(shape.losses.size());
  load.set_further_passes(FurtherPasses(shape, sharing, of_ranks, rows_at));
  return load;
}

void AddScalars(const google::protobuf::RepeatedPtrField<v1::ExpertLoad>& loads,
                google::protobuf::Map<std::string, double>& scalars) {
  if (loads.empty()) {
    return;
  }
  double balance = 0;
  double z = 0;
  double largest = 0;
  int64_t idle = 0;
  int64_t dropped = 0;
  int64_t further_passes = 0;
  for (const v1::ExpertLoad& load : loads) {
    further_passes += load.further_passes();
    balance += load.balance_loss();
    z += load.z_loss();
    dropped += load.dropped();
    idle += std::count(load.tokens().begin(), load.tokens().end(), 0);
    const auto sum =
        static_cast<double>(std::accumulate(load.tokens().begin(), load.tokens().end(), int64_t{0}));
    const auto most = static_cast<double>(*std::max_element(load.tokens().begin(), load.tokens().end()));
    if (sum > 0) {
      largest = std::max(largest, most * static_cast<double>(load.tokens().size()) / sum);
    }
  }
  const auto layers = static_cast<double>(loads.size());
  scalars["moe_balance_loss"] = balance / layers;
  scalars["moe_z_loss"] = z / layers;
  scalars["moe_largest_load"] = largest;
  scalars["moe_idle"] = static_cast<double>(idle);
  scalars["moe_dropped"] = static_cast<double>(dropped);
  scalars["moe_further_passes"] = static_cast<double>(further_passes);
}

}  // namespace

RankSharing SharingOf(const plan::JobPlan& plan) {
  RankSharing sharing{.losses = parallel::SharingRanks(plan.grid).value()};
  if (plan.model.moe.ranks > 1) {
    const model::DecoderShapes shapes(plan.model, plan.batch, plan.precision.common.compute, plan.device);
    sharing.rows_at_a_time = shapes.rows;
    for (const parallel::Group& group : plan.groups) {
      if (group.name == "ep") {
        sharing.experts.push_back(group.ranks);
      }
    }
  }
  return sharing;
}

int64_t NumDoubles(const std::vector<RouterLoad>& loads) {
  int64_t doubles = 0;
  for (const RouterLoad& load : loads) {
    doubles += NumDoubles(load);
  }
  return doubles;
}

double* Put(const std::vector<RouterLoad>& loads, double* out) {
  for (const RouterLoad& load : loads) {
    out = std::copy(load.tokens.begin(), load.tokens.end(), out);
    *out++ = load.dropped;
    for (const RouterLoad::Losses& losses : load.losses) {
      *out++ = losses.balance;
      *out++ = losses.z;
    }
    for (const std::vector<double>& rows : load.rows) {
      out = std::copy(rows.begin(), rows.end(), out);
    }
  }
  return out;
}

void Fold(const std::vector<RouterLoad>& shape, const RankSharing& sharing,
          std::vector<const double*> of_ranks, v1::StepReport& report) {
  for (const RouterLoad& layer : shape) {
    *report.mutable_norms()->add_experts() = FoldLayer(layer, sharing, of_ranks);
    for (const double*& of_rank : of_ranks) {
      of_rank += NumDoubles(layer);
    }
  }
  AddScalars(report.norms().experts(), *report.mutable_scalars());
}

}  // namespace tandem::trainer
