// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_factory.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/lone_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/nccl_error.h"
#include "comm/nccl_memory.h"
#include "device/cuda/check.h"
#include "device/cuda/current.h"
#include "device/device.h"
#include "parallel/group_options.h"
#include "parallel/job_groups.h"
#include "platform/clock.h"

namespace tandem::comm {
namespace {

class NcclFactory final : public CommunicatorFactory {
 public:
  NcclFactory(Rendezvous rendezvous, int device) : rendezvous_(std::move(rendezvous)), device_(device) {}

  std::unique_ptr<Communicator> Make(const Membership& membership, Communicator* live) override {
    if (membership.size == 1) {  // NCCL's would take some 400 MiB of the GPU, and copy all the same
      return MakeLoneCommunicator(membership, [device = device_](char* to, const char* from, int64_t bytes) {
        const device::CudaGuard guard(device);
        device::CheckCuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                          device::CurrentCudaStream(device)),
                          "copy on the GPU");
      });
    }
    TakeMultiprocessors(membership);
    const bool is_link = parallel::IsLink(membership.group);
    if (is_link && first_word_ == nullptr) {
      first_word_ = std::make_unique<NcclRegion>(device_, 1);
    }
    if (live != nullptr) {
      return CloneNcclCommunicator(membership.group, *live, membership.options, membership.ctas);
    }
    std::unique_ptr<Communicator> made = MakeNcclCommunicator(
        membership.group, *rendezvous_.store, membership.prefix, membership.rank, membership.size, device_,
        rendezvous_.timeout, membership.options,
        membership.ranks.empty() ? membership.rank
                                 : membership.ranks.at(static_cast<size_t>(membership.rank)),
        membership.ctas);
    if (is_link) {
      Connect(*made);
    }
    return made;
  }
  std::unique_ptr<device::Region> Reserve(device::Device&, int64_t bytes) override {
    return std::make_unique<NcclRegion>(device_, bytes);
  }

 private:
  // NCCL connects two ranks when the first bytes go between them, and holds the thread that issues them until
  // both do. In a step one stage's thread could so wait for another that waits for it; here both ends of a
  // link come in the same order.
  void Connect(Communicator& link) const {
    const device::CudaGuard guard(device_);
    const Memory word{.begin = first_word_->begin(), .bytes = 1};
    try {
      if (link.rank() == 0) {
        link.Send(word);
      } else {
        link.Receive(word);
      }
      AwaitFirstWord(link);
    } catch (...) {
      link.Abort();  // ends the kernel that still uses the word
      throw;
    }
  }

  void AwaitFirstWord(Communicator& link) const {
    const cudaStream_t stream = device::CurrentCudaStream(device_);
    const absl::Time deadline = platform::SteadyClock().Now() + rendezvous_.timeout;
    for (cudaError_t state = cudaErrorNotReady; state != cudaSuccess;) {
      state = cudaStreamQuery(stream);
      if (state != cudaErrorNotReady) {
        device::CheckCuda(state, "the first word of a link");
      } else if (platform::SteadyClock().Now() > deadline) {
        throw CommError("group " + link.name() + " rank " + std::to_string(link.rank()) +
                        " Transfer: the first word did not arrive within " +
                        absl::FormatDuration(rendezvous_.timeout));
      }
      link.CheckPending();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // parallel/group_options.h
  void TakeMultiprocessors(const Membership& membership) {
    int multiprocessors = 0;
    device::CheckCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_),
                      "multiprocessors of the GPU");
    ctas_ += membership.ctas;
    if (const int most = multiprocessors - parallel::kSpareMultiprocessors; ctas_ > most) {
      throw CommError("group " + membership.group + ": with it, collectives that run at once take up to " +
                      std::to_string(ctas_) + " thread blocks, and of the GPU's " +
                      std::to_string(multiprocessors) + " multiprocessors " + std::to_string(most) +
                      " are for them: they could wait for each other forever; lower max_ctas of "
                      "parallelism.nccl (min_ctas without it counts as " +
                      std::to_string(parallel::kMostCtas) + ")");
    }
  }

  const Rendezvous rendezvous_;
  const int device_;
  int ctas_ = 0;  // of the communicators made so far
  // What links move first. Allocated before any link is made, and kept: the driver may let neither an
  // allocation nor its end pass a kernel of a link that waits for this rank, where both ends share a process.
  std::unique_ptr<NcclRegion> first_word_;
};

}  // namespace

std::unique_ptr<CommunicatorFactory> MakeNcclFactory(Rendezvous rendezvous, int device) {
  return std::make_unique<NcclFactory>(std::move(rendezvous), device);
}

std::unique_ptr<Communicator> MakeNcclCommunicator(const std::string& name, Store& store,
                                                   const std::string& prefix, int rank, int size, int device,
                                                   absl::Duration timeout,
                                                   const parallel::GroupOptions& options,
                                                   std::optional<int> job_rank, int ctas) {
  const std::string key = prefix + "/nccl";
  ncclUniqueId id;
  if (rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw CommError("group " + name + " rank 0 creation: NCCL: " + NcclErrorText(result, nullptr));
    }
    store.Set(key, std::string(id.internal, sizeof(id.internal)));
  } else {
    const std::string value = store.Get(key, timeout);
    if (value.size() != sizeof(id.internal)) {
      throw CommError("group " + name + ": the rendezvous holds no id of NCCL under " + key);
    }
    std::memcpy(id.internal, value.data(), value.size());
  }
  return std::make_unique<NcclCommunicator>(name, rank, size, job_rank.value_or(rank), device, timeout,
                                            options, ctas, [=](ncclComm_t* comm, ncclConfig_t* config) {
                                              return ncclCommInitRankConfig(comm, size, id, rank, config);
                                            });
}

std::unique_ptr<Communicator> CloneNcclCommunicator(const std::string& name, Communicator& parent,
                                                    const parallel::GroupOptions& options, int ctas) {
  auto* const live = dynamic_cast<NcclCommunicator*>(&parent);
  if (live == nullptr) {
    throw std::logic_error("group " + parent.name() + " is not an NCCL group");
  }
  return std::make_unique<NcclCommunicator>(name, live->rank(), live->size(), live->job_rank(),
                                            live->device(), live->timeout(), options, ctas, live->Split());
}

}  // namespace tandem::comm
