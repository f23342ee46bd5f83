// SPDX-License-Identifier: Apache-2.0
#include "trainer/reporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/communicator.h"
#include "comm/tree_gather.h"

namespace tandem::trainer {
namespace {

constexpr char kValidationLoss[] = "validation_loss";
constexpr char kDepthLoss[] = "mtp_loss";
constexpr int kDoublesPerMagnitude = 3;
constexpr int kDoublesPerItem = 3 * kDoublesPerMagnitude;  // weight, gradient, update

// The sum of the losses of `microbatches`, which begin at `at` in each rank's doubles.
double SumOfLosses(const std::vector<const double*>& of_ranks, const RankSharing& sharing, int64_t at,
                   int64_t microbatches) {
  return SumOfMicrobatches(sharing.losses, microbatches,
                           [&](int rank, int64_t round) { return of_ranks[rank][at + round]; });
}

// The same list of doubles of every rank, each beginning further on.
std::vector<const double*> Behind(std::vector<const double*> of_ranks, int64_t doubles) {
  for (const double*& of_rank : of_ranks) {
    of_rank += doubles;
  }
  return of_ranks;
}

double* Put(const fsdp::Magnitude& magnitude, double* out) {
  *out++ = magnitude.squares.high;
  *out++ = magnitude.squares.low;
  *out++ = magnitude.max_abs;
  return out;
}

fsdp::Magnitude Get(const double* in) { return {.squares = {.high = in[0], .low = in[1]}, .max_abs = in[2]}; }

double MaxAbsOf(const fsdp::Magnitude& magnitude) {
  const double squares = magnitude.squares.value();
  return std::isnan(squares) ? squares : magnitude.max_abs;
}

}  // namespace

Reporter::Reporter(comm::Communicator& comm, std::vector<int64_t> item_elements, std::vector<int64_t> own,
                   RankSharing sharing, Report report,
                   std::function<void(int64_t, std::exception_ptr)> failed)
    : comm_(comm),
      item_elements_(std::move(item_elements)),
      own_(std::move(own)),
      sharing_(std::move(sharing)),
      report_(std::move(report)),
      thread_("report",
              [this, failed = std::move(failed)](const std::exception_ptr& error) { failed(step_, error); }) {
}

void Reporter::Submit(StepRecord record) {
  thread_.Await();
  step_ = record.report.step();
  thread_.Begin(step_, [this, record = std::move(record)] {
    Fold(record);
    return std::string();
  });
}

void Reporter::ExchangeOwn() {
  std::array count = {static_cast<int64_t>(own_.size())};
  num_own_.resize(static_cast<size_t>(comm_.size()));
  comm_.AllGather(device::MemoryOf(count), device::MemoryOf(num_own_));
  std::vector<int64_t> bytes;
  for (const int64_t own : num_own_) {
    bytes.push_back(own * static_cast<int64_t>(sizeof(int64_t)));
  }
  std::vector<int64_t> mine = own_;
  const comm::TreeGathered all = comm::GatherByTree(comm_, bytes, device::MemoryOf(mine));
  for (size_t rank = 0; rank < all.of_ranks.size(); ++rank) {
    std::vector<int64_t>& places = owned_.emplace_back(num_own_[rank]);
    std::copy_n(all.of_ranks[rank], bytes[rank], reinterpret_cast<char*>(places.data()));
  }
}

void Reporter::FoldNorms(const std::vector<const double*>& of_ranks, v1::StepReport& report,
                         std::vector<NonfiniteGradient>& nonfinite) const {
  std::vector<fsdp::ParameterNorms> totals(item_elements_.size());
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const double* in = of_ranks[rank];
    for (const int64_t item : owned_[rank]) {
      const fsdp::Magnitude gradient = Get(in + kDoublesPerMagnitude);
      totals[item].weight.Add(Get(in));
      totals[item].gradient.Add(gradient);
      totals[item].update.Add(Get(in + 2 * kDoublesPerMagnitude));
      if (!std::isfinite(gradient.squares.high)) {
        nonfinite.push_back({.parameter = item, .rank = rank});
      }
      in += kDoublesPerItem;
    }
  }
  std::stable_sort(nonfinite.begin(), nonfinite.end(),
                   [](const NonfiniteGradient& a, const NonfiniteGradient& b) {
                     return a.parameter < b.parameter;  // and by rank, as they are
                   });
  v1::Norms& norms = *report.mutable_norms();
  for (size_t item = 0; item < totals.size(); ++item) {
    const fsdp::ParameterNorms& total = totals[item];
    const double weight_squares = total.weight.squares.value();
    norms.add_weight(std::sqrt(weight_squares));
    norms.add_gradient(std::sqrt(total.gradient.squares.value()));
    norms.add_update(std::sqrt(total.update.squares.value()));
    norms.add_rms(std::sqrt(weight_squares / static_cast<double>(item_elements_[item])));
    norms.add_max_abs(MaxAbsOf(total.weight));
    norms.add_gradient_max_abs(MaxAbsOf(total.gradient));
    norms.add_update_max_abs(MaxAbsOf(total.update));
  }
}

void Reporter::Fold(const StepRecord& record) {
  const bool with_norms = record.norms.has_value() && !item_elements_.empty();
  if (with_norms && num_own_.empty()) {
    ExchangeOwn();
  }
  const auto rounds = static_cast<int64_t>(record.losses.size());
  const auto depths = static_cast<int64_t>(record.depth_losses.size());
  const int64_t validation_at = rounds * (1 + depths);
  int64_t validation_rounds = 0;
  for (const TextLosses& text : record.validation) {
    validation_rounds += static_cast<int64_t>(text.losses.size());
  }
  const int64_t routers_at = validation_at + validation_rounds;
  const int64_t norms_at = routers_at + NumDoubles(record.routers);  // last: ranks own more and less
  std::vector<int64_t> bytes(static_cast<size_t>(comm_.size()), norms_at);
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    bytes[rank] += with_norms ? num_own_[rank] * kDoublesPerItem : 0;
    bytes[rank] *= static_cast<int64_t>(sizeof(double));
  }
  std::vector<double> mine(static_cast<size_t>(bytes[comm_.rank()]) / sizeof(double));
  double* out = std::copy(record.losses.begin(), record.losses.end(), mine.data());
  for (const std::vector<double>& losses : record.depth_losses) {
    out = std::copy(losses.begin(), losses.end(), out);
  }
  for (const TextLosses& text : record.validation) {
    out = std::copy(text.losses.begin(), text.losses.end(), out);
  }
  out = Put(record.routers, out);
  for (size_t i = 0; with_norms && i < own_.size(); ++i) {
    const fsdp::ParameterNorms& norms = record.norms->at(i);
    for (const fsdp::Magnitude* magnitude : {&norms.weight, &norms.gradient, &norms.update}) {
      out = Put(*magnitude, out);
    }
  }
  const comm::TreeGathered all = comm::GatherByTree(comm_, bytes, device::MemoryOf(mine));
  if (comm_.rank() != 0) {
    return;
  }
  // Messages are whole doubles, and so are at multiples of one.
  std::vector<const double*> of_ranks;
  for (const char* const message : all.of_ranks) {
    of_ranks.push_back(reinterpret_cast<const double*>(message));
  }

  v1::StepReport report = record.report;
  const auto mean_loss = [&](int64_t at) {
    return SumOfLosses(of_ranks, sharing_, at, rounds * static_cast<int64_t>(sharing_.losses.size())) /
           record.divisor;
  };
  if (rounds > 0) {
    report.set_loss(mean_loss(0));
  }
  for (int64_t depth = 1; depth <= depths; ++depth) {
    (*report.mutable_scalars())[absl::StrCat(kDepthLoss, "/", depth)] = mean_loss(depth * rounds);
  }
  FoldValidation(record.validation, of_ranks, validation_at, report);
  std::vector<NonfiniteGradient> nonfinite;
  if (with_norms) {
    FoldNorms(Behind(of_ranks, norms_at), report, nonfinite);
  }
  trainer::Fold(record.routers, sharing_, Behind(of_ranks, routers_at), report);
  report_(report, nonfinite);
}

void Reporter::FoldValidation(const std::vector<TextLosses>& validation,
                              const std::vector<const double*>& of_ranks, int64_t at,
                              v1::StepReport& report) const {
  double sum = 0;
  double divisor = 0;
  for (const auto& [extent, losses] : validation) {
    const double of_text = SumOfLosses(of_ranks, sharing_, at, extent.batches);
    if (!extent.name.empty()) {
      (*report.mutable_scalars())[absl::StrCat(kValidationLoss, "/", extent.name)] = of_text / extent.divisor;
    }
    sum += of_text;
    divisor += extent.divisor;
    at += static_cast<int64_t>(losses.size());
  }
  if (!validation.empty()) {
    (*report.mutable_scalars())[kValidationLoss] = sum / divisor;
  }
}

}  // namespace tandem::trainer
