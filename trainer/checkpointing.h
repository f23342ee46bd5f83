#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "platform/files.h"

namespace tandem::trainer {

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
