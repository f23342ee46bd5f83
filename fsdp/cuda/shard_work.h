#pragma once

#include <memory>

#include "fsdp/shard_work.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::fsdp {

// On the GPU that the shards are on, on the current stream; the norms travel to pinned memory behind the
// optimizer's kernels. Small tables and partial sums are in memory of LibTorch's allocator.
std::unique_ptr<ShardWork> MakeCudaShardWork(ShardMemory memory);

// GradientNorm's state on the current GPU: terms, gathered terms, outcome.
class CudaNorm {
 public:
  explicit CudaNorm(int ranks);
  ~CudaNorm();
  CudaNorm(const CudaNorm&) = delete;
  CudaNorm& operator=(const CudaNorm&) = delete;

  // All on the current stream: Start, the units' AddTerms(terms()), Agree.
  void Start(const NormRequests& asked);
  NormTerms* terms();
  void Agree(comm::Communicator& comm, double num_microbatches, double max_norm);

  const NormOutcome* outcome() const;  // on the GPU
  NormOutcome Read() const;            // on the host, once the stream has passed Agree

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::fsdp
