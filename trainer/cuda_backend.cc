#include "comm/nccl_communicator.h"
#include "device/cuda/device.h"
#include "fsdp/cuda/shard_work.h"
#include "fsdp/sharded_unit.h"
#include "ops/cuda/operations.h"
#include "trainer/backend.h"

namespace tandem::trainer {
namespace {

class CudaGradientNorm final : public GradientNorm {
 public:
  explicit CudaGradientNorm(int ranks) : norm_(ranks) {}

  void Agree(std::vector<fsdp::ShardedUnit>& units, const fsdp::NormRequests& asked, double num_microbatches,
             double max_norm, comm::Communicator& comm) override {
    norm_.Start(asked);
    for (fsdp::ShardedUnit& unit : units) {
      unit.AddTerms(norm_.terms());
    }
    norm_.Agree(comm, num_microbatches, max_norm);
  }
  const fsdp::NormOutcome* agreed() const override { return norm_.outcome(); }
  NormResult Read() const override { return norm_.Read(); }

 private:
  fsdp::CudaNorm norm_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index) : index_(index), device_(device::MakeCudaDevice(index)) {}

  device::Device& device() override { return *device_; }
  const ops::Operations& operations() const override { return ops::CudaOperations(); }
  fsdp::MakeShardWork shard_work() const override { return fsdp::MakeCudaShardWork; }
  std::unique_ptr<GradientNorm> MakeGradientNorm(int ranks) override {
    return std::make_unique<CudaGradientNorm>(ranks);
  }

  std::unique_ptr<comm::Communicator> MakeCommunicator(const GroupMembership& group,
                                                       const Rendezvous& rendezvous,
                                                       comm::Communicator* clone_of) override {
    if (clone_of != nullptr) {
      return comm::CloneNcclCommunicator(group.name, *clone_of);
    }
    return comm::MakeNcclCommunicator(group.name, *rendezvous.store, group.prefix, group.rank, group.size,
                                      index_, rendezvous.timeout);
  }

  bool needs_watch() const override { return true; }

 private:
  const int index_;
  const std::unique_ptr<device::Device> device_;
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend(int index) { return std::make_unique<CudaBackend>(index); }

}  // namespace tandem::trainer
