// SPDX-License-Identifier: Apache-2.0
#include "trainer/batch_reader.h"

#include <pthread.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/loader.h"
#include "ops/tokens.h"
#include "trainer/failure.h"

namespace tandem::trainer {

BatchReader::BatchReader() : thread_([this] { Read(); }) {}

BatchReader::~BatchReader() {
  {
    const absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void BatchReader::Request(int64_t run, std::vector<int64_t*> destinations, Load load) {
  {
    const absl::MutexLock lock(&mu_);
    if (jobs_.size() == 2) {
      jobs_.pop_front();  // its run has ended, so it is read
    }
    jobs_.push_back({.run = run, .destinations = std::move(destinations), .load = std::move(load)});
  }
  changed_.SignalAll();
}

void BatchReader::Await(int64_t run, int microbatch) {
  const absl::MutexLock lock(&mu_);
  while (!cancelled_) {
    const Job* const job = Find(run);  // again after each wait: it may have moved
    if (job == nullptr) {
      throw std::logic_error(absl::StrCat("the batches were not requested of run ", run));
    }
    if (job->done > microbatch) {
      return;
    }
    if (job->error != nullptr) {
      std::rethrow_exception(job->error);
    }
    changed_.Wait(&mu_);
  }
  throw std::runtime_error("loading of batches was stopped");
}

void BatchReader::Cancel() {
  {
    const absl::MutexLock lock(&mu_);
    cancelled_ = true;
  }
  changed_.SignalAll();
}

BatchReader::Job* BatchReader::Unfinished() {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [](const Job& job) {
    return job.error == nullptr && job.done < static_cast<int>(job.destinations.size());
  });
  return found == jobs_.end() ? nullptr : &*found;
}

BatchReader::Job* BatchReader::Find(int64_t run) {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [run](const Job& job) { return job.run == run; });
  return found == jobs_.end() ? nullptr : &*found;
}

void BatchReader::Read() {
  pthread_setname_np(pthread_self(), "data");
  while (true) {
    int64_t run = 0;
    int microbatch = 0;
    Load load;
    int64_t* tokens = nullptr;
    {
      const absl::MutexLock lock(&mu_);
      const Job* next = nullptr;
      while (!ending_ && (next = Unfinished()) == nullptr) {
        changed_.Wait(&mu_);
      }
      if (ending_) {
        return;
      }
      run = next->run;
      microbatch = next->done;
      load = next->load;
      tokens = next->destinations[microbatch];
    }
    std::exception_ptr error;
    try {
      load(microbatch, tokens);
    } catch (...) {
      error = std::current_exception();
    }
    const absl::MutexLock lock(&mu_);
    if (Job* const job = Find(run); job != nullptr) {
      job->error = error;
      job->done += error == nullptr ? 1 : 0;
    }
    changed_.SignalAll();
  }
}

static_assert(data::kNotCounted == ops::kNotCounted);

void CheckTokens(const model::BatchShape& batch, int64_t vocab_size, const int64_t* tokens,
                 const std::function<data::Place(int64_t sequence, int64_t token)>& where) {
  for (int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
    const int64_t* const row = tokens + sequence * batch.columns();
    for (int64_t i = 0; i <= batch.sequence_length; ++i) {
      if (row[i] < 0 || row[i] >= vocab_size) {
        const data::Place place = where(sequence, i);
        throw UserError(absl::StrCat("data: ", place.file, " has token id ", row[i], " at byte ", place.byte,
                                     "; a model with model.vocab_size ", vocab_size, " takes ids from 0 to ",
                                     vocab_size - 1, ": use the tokenizer that the vocabulary belongs to"));
      }
    }
  }
}

}  // namespace tandem::trainer
