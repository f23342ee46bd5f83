#include "trainer/gradient_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "comm/communicator.h"

namespace tandem::trainer {
namespace {

class CpuGradientNorm final : public GradientNorm {
 public:
  void Agree(std::vector<fsdp::ShardedUnit>& units, const fsdp::NormRequests& asked, double num_microbatches,
             double max_norm, comm::Communicator& comm) override {
    fsdp::NormTerms own{.requests = static_cast<double>(asked.bits), .profile = asked.profile};
    for (fsdp::ShardedUnit& unit : units) {
      unit.AddTerms(&own);
    }
    result_ = ExchangeNorm(own, num_microbatches, max_norm, comm);
  }
  const fsdp::NormOutcome* agreed() const override { return &result_; }
  NormResult Read() const override { return result_; }

 private:
  NormResult result_;
};

}  // namespace

std::unique_ptr<GradientNorm> MakeCpuGradientNorm() { return std::make_unique<CpuGradientNorm>(); }

NormResult ExchangeNorm(const fsdp::NormTerms& own, double num_microbatches, double max_norm,
                        comm::Communicator& comm) {
  constexpr int64_t kFields = sizeof(fsdp::NormTerms) / sizeof(double);
  const at::Tensor mine = at::empty({kFields}, at::kDouble);
  at::Tensor all = at::empty({comm.size() * kFields}, at::kDouble);
  std::memcpy(mine.mutable_data_ptr<double>(), &own, sizeof own);
  comm.AllGather(mine, all);
  std::vector<fsdp::NormTerms> terms(static_cast<size_t>(comm.size()));
  std::memcpy(static_cast<void*>(terms.data()), all.const_data_ptr<double>(), terms.size() * sizeof own);
  return fsdp::AgreeOnNorm(terms.data(), comm.size(), num_microbatches, max_norm);
}

}  // namespace tandem::trainer
