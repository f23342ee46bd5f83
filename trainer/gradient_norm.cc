#include "trainer/gradient_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "comm/communicator.h"

namespace tandem::trainer {

NormResult AgreeOnNorm(const std::vector<fsdp::GradientTerms>& units, uint32_t requests,
                       const ProfileSteps& profile, double num_microbatches, double max_norm,
                       comm::Communicator& comm) {
  fsdp::Sum own;
  int64_t own_nonfinite = 0;
  for (const fsdp::GradientTerms& terms : units) {
    own.Add(terms.squares);
    own_nonfinite += terms.nonfinite;
  }

  constexpr int kFields = 5;
  const at::Tensor mine = at::empty({kFields}, at::kDouble);
  at::Tensor all = at::empty({comm.size() * kFields}, at::kDouble);
  double* sent = mine.mutable_data_ptr<double>();
  sent[0] = own.high;
  sent[1] = own.low;
  sent[2] = static_cast<double>(own_nonfinite);
  sent[3] = static_cast<double>(requests);
  sent[4] = profile.ToNumber();
  comm.AllGather(mine, all);

  NormResult result;
  fsdp::Sum squares;
  double asked = 0;
  const double* received = all.const_data_ptr<double>();
  for (int rank = 0; rank < comm.size(); ++rank, received += kFields) {
    squares.Add(fsdp::Sum{.high = received[0], .low = received[1]});
    result.nonfinite += static_cast<int64_t>(received[2]);
    result.requests |= static_cast<uint32_t>(received[3]);
    asked = std::max(asked, received[4]);
  }
  result.profile = ProfileSteps::FromNumber(asked);
  result.norm = std::sqrt(squares.value()) / num_microbatches;
  // Finite elements whose squares overflow a double are as useless as NaN.
  result.finite = result.nonfinite == 0 && std::isfinite(result.norm);
  if (max_norm > 0 && result.finite) {
    result.clip = std::min(1.0, max_norm / (result.norm + 1e-6));
  }
  return result;
}

}  // namespace tandem::trainer
