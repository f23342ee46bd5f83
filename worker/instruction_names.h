// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::worker {

// How messages name the instructions of a job's programs, in the order in which the shared page counts them.
// A job may have a million: one takes 8 bytes, since microbatches repeat the same few.
class InstructionNames {
 public:
  // what: without its microbatch, "forward layers.0.mlp"; act: "forward". microbatch -1: it is not of one.
  void Add(const std::string& what, const std::string& act, int microbatch);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

  // As the program prints it: "forward layers.0.mlp mb 2". Requires 0 <= index < size().
  std::string Text(int64_t index) const;

  // "forward of microbatch 2"; its Text if it is not of one.
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
  std::map<std::string, int32_t> kind_of_;  // by what
  std::vector<Entry> entries_;
};

// The instructions of all programs of the job, in the order of StagePrograms::All(), which the shared page's
// instruction counts through: to say where a rank was when it died. Empty if the programs cannot be derived
// from the spec; the cause then has the bare index.
InstructionNames NameProgram(const v1::JobSpec& resolved);

}  // namespace tandem::worker
