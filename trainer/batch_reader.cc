// SPDX-License-Identifier: Apache-2.0
#include "trainer/batch_reader.h"

#include <pthread.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/failure.h"

namespace tandem::trainer {

BatchReader::BatchReader() : thread_([this] { Read(); }) {}

BatchReader::~BatchReader() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchReader::Request(int64_t run, std::vector<int64_t*> destinations, Load load) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (jobs_.size() == 2) {
      jobs_.pop_front();  // its run has ended, so it is read
    }
    jobs_.push_back({.run = run, .destinations = std::move(destinations), .load = std::move(load)});
  }
  changed_.notify_all();
}

void BatchReader::Await(int64_t run, int microbatch) {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock,
                [&] { return cancelled_ || Find(run).done > microbatch || Find(run).error != nullptr; });
  if (cancelled_) {
    throw std::runtime_error("loading of batches was stopped");
  }
  const Job& job = Find(run);
  if (job.done <= microbatch) {
    std::rethrow_exception(job.error);
  }
}

void BatchReader::Cancel() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    cancelled_ = true;
  }
  changed_.notify_all();
}

BatchReader::Job& BatchReader::Find(int64_t run) {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [run](const Job& job) { return job.run == run; });
  if (found == jobs_.end()) {
    throw std::logic_error(absl::StrCat("the batches were not requested of run ", run));
  }
  return *found;
}

void BatchReader::Read() {
  pthread_setname_np(pthread_self(), "data");
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    Job* next = nullptr;
    changed_.wait(lock, [&] {
      const auto found = std::find_if(jobs_.begin(), jobs_.end(), [](const Job& job) {
        return job.error == nullptr && job.done < static_cast<int>(job.destinations.size());
      });
      next = found == jobs_.end() ? nullptr : &*found;
      return ending_ || next != nullptr;
    });
    if (ending_) {
      return;
    }
    const int64_t run = next->run;
    const int microbatch = next->done;
    const Load load = next->load;
    int64_t* const tokens = next->destinations[microbatch];
    lock.unlock();
    std::exception_ptr error;
    try {
      load(microbatch, tokens);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    const auto job = std::find_if(jobs_.begin(), jobs_.end(), [run](const Job& j) { return j.run == run; });
    if (job != jobs_.end()) {
      job->error = error;
      job->done += error == nullptr ? 1 : 0;
    }
    changed_.notify_all();
  }
}

void CheckTokens(const model::BatchShape& batch, int64_t vocab_size, int microbatch, const int64_t* tokens) {
  for (int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
    const int64_t* const row = tokens + sequence * batch.columns();
    for (int64_t i = 0; i <= batch.sequence_length; ++i) {
      if (row[i] < 0 || row[i] >= vocab_size) {
        throw UserError(absl::StrCat("data: microbatch ", microbatch, " of this rank has token id ", row[i],
                                     " at position ", i, " of sequence ", sequence,
                                     "; a model with model.vocab_size ", vocab_size, " takes ids from 0 to ",
                                     vocab_size - 1, ": use the tokenizer that the vocabulary belongs to"));
      }
    }
  }
}

}  // namespace tandem::trainer
