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

// Reads the batches of runs on its own thread, while earlier runs are in flight.
//
// Requests are served in their order, microbatch by microbatch. One thread makes the requests; any thread may
// wait. If a microbatch cannot be read, Await throws the error for that microbatch and for all later ones of
// the run.
class BatchReader {
 public:
  // Writes the tokens of one of this rank's microbatches to `tokens`. Called on the reader's thread.
  using Load = std::function<void(int microbatch, int64_t* tokens)>;

  BatchReader();
  ~BatchReader() ABSL_LOCKS_EXCLUDED(mu_);  // drops requests that were not started
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Requests the microbatches of run `run`. Microbatch m is written to destinations[m], which must stay valid
  // and untouched until the run has ended. Runs come in ascending order. The record of a run is dropped when
  // the second run after it is requested.
  void Request(int64_t run, std::vector<int64_t*> destinations, Load load) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until the microbatch has been read. Throws what its Load threw, and std::runtime_error after
  // Cancel.
  void Await(int64_t run, int microbatch) ABSL_LOCKS_EXCLUDED(mu_);

  // Makes all current and later calls of Await throw, so that a rank can end while its data is slow.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    int64_t run = 0;
    std::vector<int64_t*> destinations;
    Load load;
    int done = 0;  // number of microbatches read
    std::exception_ptr error;
  };

  void Read() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the first job with unread microbatches; null if there is none.
  Job* Unfinished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Job* Find(int64_t run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // null if there is none

  absl::Mutex mu_;
  absl::CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);  // the two newest runs
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Throws UserError if a token id of the batch, [B, batch.columns()], is outside the vocabulary: on a GPU its
// embedding would be NaN, and the step would be skipped. `where` returns the location of a token in the data,
// for the message.
void CheckTokens(const model::BatchShape& batch, int64_t vocab_size, const int64_t* tokens,
                 const std::function<data::Place(int64_t sequence, int64_t token)>& where);

}  // namespace tandem::trainer
