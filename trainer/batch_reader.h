// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

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
  ~BatchReader();  // drops what has not begun
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Asks for the microbatches of run `run`: microbatch m goes to destinations[m], which stay alive and
  // untouched until the run has ended. Runs come in ascending order; a run's record goes when the run but one
  // after it is asked for.
  void Request(int64_t run, std::vector<int64_t*> destinations, Load load);

  // Returns once the microbatch is there. Throws what its Load threw; std::runtime_error after Cancel.
  void Await(int64_t run, int microbatch);

  // Whoever waits, now or later, waits no more: the runs end with an error, and data may be slow.
  void Cancel();

 private:
  struct Job {
    int64_t run = 0;
    std::vector<int64_t*> destinations;
    Load load;
    int done = 0;  // microbatches
    std::exception_ptr error;
  };

  void Read();
  Job& Find(int64_t run);  // requires mu_

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;    // the newest two; mu_
  bool cancelled_ = false;  // mu_
  bool ending_ = false;     // mu_
  std::thread thread_;
};

// Throws UserError where a token id of the batch [B, batch.columns()] has no row in the vocabulary: a GPU
// would make a NaN of it, and the step would be skipped. microbatch: of this rank, for the message.
void CheckTokens(const model::BatchShape& batch, int64_t vocab_size, int microbatch, const int64_t* tokens);

}  // namespace tandem::trainer
