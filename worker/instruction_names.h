// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::worker {

// Names, for messages, of the instructions of all programs of a job's stage. The index of an instruction is
// its number in SharedPage::instruction (link/shared_page.h). A job may have a million instructions; each
// takes 8 bytes here, because all microbatches share the same few names.
class InstructionNames {
 public:
  // Appends an instruction. `what` is its text without the microbatch, such as "forward layers.0.mlp"; `act`
  // is its opcode, "forward"; `microbatch` is -1 if it belongs to none.
  void Add(const std::string& what, const std::string& act, int microbatch);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

  // The instruction as the program prints it: "forward layers.0.mlp mb 2". Requires 0 <= index < size().
  std::string Text(int64_t index) const;

  // "forward of microbatch 2"; Text(index) if the instruction belongs to no microbatch.
  std::string Phrase(int64_t index) const;

 private:
  struct Kind {
    std::string what;
    std::string act;
  };
  struct Entry {
    int32_t kind = 0;
    int32_t microbatch = -1;
  };

  std::vector<Kind> kinds_;
  std::map<std::string, int32_t> kind_of_;  // index in kinds_, by Kind::what
  std::vector<Entry> entries_;
};

// Returns the names of the instructions of all programs of the job's stage, in the order of
// StagePrograms::All(), to say where a rank was when it died. Empty if the programs cannot be derived from
// the spec: the message about the rank then gives the number of the last instruction instead of its name, and
// Cause.last_instruction is empty.
InstructionNames NameProgram(const v1::JobSpec& resolved);

}  // namespace tandem::worker
