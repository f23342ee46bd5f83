#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "fsdp/unit_shard.h"
#include "platform/files.h"

namespace at {
class Tensor;
}
namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::trainer {

// A rank's whole state as arrays of a checkpoint: per unit "<unit>/weights", "<unit>/exp_avg" and
// "<unit>/exp_avg_sq". The data position needs no state: it follows from the step.
//
// The shards are of host memory: on the CPU the units' own, on a GPU copies as large as that state, which are
// made at their first use and kept.
class StateArrays {
 public:
  // states: of the units, in their order, of elements of `type` in `device`'s memory, which outlives it.
  StateArrays(const device::Device& device, c10::ScalarType type, const std::vector<fsdp::UnitShard>& units,
              const std::vector<fsdp::StateMemory>& states);
  ~StateArrays();

  const std::vector<checkpoint::Shard>& shards();

  // Copies the units' state to the shards, or the shards to the units, and waits. Between programs.
  void FromDevice();
  void ToDevice();

 private:
  std::vector<at::Tensor> device_;
  std::vector<at::Tensor> host_;  // the same tensors where they are on the host; undefined: not used yet
  std::vector<checkpoint::Shard> shards_;
};

// What decides where a job starts.
struct ResumeOptions {
  std::string job;          // id
  std::string directory;    // of its checkpoints; may be empty
  std::string resume;       // of the spec: "", "newest", a path
  std::string resume_from;  // a checkpoint that the controller chose; goes before `resume`
  std::string layout_digest;
};

// Collective. The checkpoint to start from, the same on all ranks; rank 0 looks and tells. Empty path: start
// at step 0. Throws UserError on every rank where a named checkpoint cannot be read or is of another model,
// or where the directory holds later ones of another job, which would stand where this job's are to be.
checkpoint::Found ChooseCheckpoint(platform::Files& files, comm::Communicator& comm,
                                   const ResumeOptions& options);

// Collective. Every rank must see a file that rank 0 has just written in `directory`; throws UserError on all
// ranks, naming those that do not, after five seconds.
void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                     int attempt);

// Collective. From now on `directory` is this job's and no other can save there (checkpoint/owner.h). Throws
// UserError on all ranks where rank 0 cannot write to it.
void TakeDirectory(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                   const std::string& job);

}  // namespace tandem::trainer
