// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "schedules/program/program.h"
#include "trainer/bound_program.h"

namespace tandem::trainer {

class Binder;
class StageMemory;

// Binds the instructions of a job's programs so that instructions on the same stream that do the same to the
// same memory share one call: in the runs of both parities, which differ only in rings, and in microbatches
// whose buffers alternate between the same addresses. Without sharing, each instruction has about 5 kB of
// tensors, which is gigabytes in a job of a thousand microbatches.
//
// A call can be shared because it keeps nothing between two runs, and a stream runs one call at a time.
// Needed only while programs are bound. Not thread-safe.
class SharedCalls {
 public:
  // Both outlive this object. What the calls need (Binder) must outlive the calls.
  SharedCalls(const Binder& binder, const StageMemory& memory) : binder_(binder), memory_(memory) {}

  // Binds an instruction as Binder::Bind does.
  std::shared_ptr<const Call> Get(const schedules::Program& program,
                                  const schedules::Instruction& instruction, int parity,
                                  comm::Communicator* communicator);

  size_t num_calls() const { return num_calls_; }  // number of calls that were bound

 private:
  // Identifies everything that the call depends on. Empty if it depends on more than that, so that the
  // instruction needs a call of its own.
  std::string KeyOf(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
                    const comm::Communicator* communicator) const;

  const Binder& binder_;
  const StageMemory& memory_;
  std::map<std::string, std::shared_ptr<const Call>> calls_;
  size_t num_calls_ = 0;
};

}  // namespace tandem::trainer
