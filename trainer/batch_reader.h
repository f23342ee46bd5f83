// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "data/token_source.h"
#include "model/config.h"

namespace tandem::trainer {

// Reads the batches of runs on a thread of its own, while runs before them are in flight.
//
// Jobs are done in the order in which they were asked for, microbatch by microbatch. One thread asks, any
// thread waits. An error of a microbatch is thrown to the thread that waits for it, or for a later one.
class BatchReader {
 public:
  // Writes the tokens of one of this rank's microbatches to `tokens`. Called on the reader's thread.
  using Load = std::function<void(int microbatch, int64_t* tokens)>;

  BatchReader();
  ~BatchReader() ABSL_LOCKS_EXCLUDED(mu_);  // drops what has not begun
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Asks for the microbatches of run `run`: microbatch m goes to destinations[m], which stay alive and
  // untouched until the run has ended. Runs come in ascending order; a run's record goes when the run but one
  // after it is asked for.
  void Request(int64_t run, std::vector<int64_t*> destinations, Load load) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns once the microbatch is there. Throws what its Load threw; std::runtime_error after Cancel.
  void Await(int64_t run, int microbatch) ABSL_LOCKS_EXCLUDED(mu_);

  // Whoever waits, now or later, waits no more: the runs end with an error, and data may be slow.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    int64_t run = 0;
    std::vector<int64_t*> destinations;
    Load load;
    int done = 0;  // microbatches
    std::exception_ptr error;
  };

  void Read() ABSL_LOCKS_EXCLUDED(mu_);
  Job* Unfinished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // the first that has microbatches to read; or null
  Job* Find(int64_t run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // or null

  absl::Mutex mu_;
  absl::CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);  // the newest two
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Throws UserError where a token id of the batch [B, batch.columns()] has no row in the vocabulary: a GPU
// would make a NaN of it, and the step would be skipped. where: the place of a token of a sequence, for the
// message.
void CheckTokens(const model::BatchShape& batch, int64_t vocab_size, const int64_t* tokens,
                 const std::function<data::Place(int64_t sequence, int64_t token)>& where);

}  // namespace tandem::trainer
