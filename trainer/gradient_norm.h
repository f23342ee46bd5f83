#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/norm_outcome.h"
#include "fsdp/sharded_unit.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

using NormResult = fsdp::NormOutcome;

// The instruction GradientNorm on one kind of device, and what it leaves in the device's memory for
// OptimizerStep: no host waits between the two.
class GradientNorm {
 public:
  virtual ~GradientNorm() = default;

  // On the current stream. One all-gather of this rank's terms and requests, folded in rank order on
  // every rank. num_microbatches and max_norm are those of fsdp::AgreeOnNorm. Throws CommError.
  virtual void Agree(std::vector<fsdp::ShardedUnit>& units, const fsdp::NormRequests& asked,
                     double num_microbatches, double max_norm, comm::Communicator& comm) = 0;

  virtual const fsdp::NormOutcome* agreed() const = 0;  // in the device's memory

  // On the host, once the stream has passed Agree.
  virtual NormResult Read() const = 0;
};

std::unique_ptr<GradientNorm> MakeCpuGradientNorm();

// What the CPU's does: exchanges `own` and folds. Throws CommError.
NormResult ExchangeNorm(const fsdp::NormTerms& own, double num_microbatches, double max_norm,
                        comm::Communicator& comm);

}  // namespace tandem::trainer
