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

// Binds the instructions of a job's programs so that those that do the same, on the same stream, to the same
// memory have one call: in the runs of both parities, which differ in rings alone, and in microbatches whose
// buffers take turns at the same addresses. A call of its own for each instruction and parity is 5 kB of
// tensors an instruction, gigabytes in a job of a thousand microbatches.
//
// A call may be shared since it keeps nothing from one time to the next, and a stream runs one at a time.
// Needed only while programs are bound. Not thread-safe.
class SharedCalls {
 public:
  // Both outlive it, and what the calls need outlives these (Binder).
  SharedCalls(const Binder& binder, const StageMemory& memory) : binder_(binder), memory_(memory) {}

  // As Binder::Bind.
  std::shared_ptr<const Call> Get(const schedules::Program& program,
                                  const schedules::Instruction& instruction, int parity,
                                  comm::Communicator* communicator);

  size_t num_calls() const { return num_calls_; }  // that were bound

 private:
  // All that the call follows from; empty: from more than that, it is the instruction's own.
  std::string KeyOf(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
                    const comm::Communicator* communicator) const;

  const Binder& binder_;
  const StageMemory& memory_;
  std::map<std::string, std::shared_ptr<const Call>> calls_;
  size_t num_calls_ = 0;
};

}  // namespace tandem::trainer
