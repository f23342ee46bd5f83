// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/stream.h"

namespace tandem::device {

// The streams of all ranks of a process, run one piece of work at a time: the next of the ready pieces is
// drawn from a seed. A piece is ready when the events that its stream waits for are reached. The same seed
// and program give the same order, so an order that shows a fault can be run again.
//
// A round starts when every rank synchronizes one of its streams. If some rank synchronizes a whole stream,
// everything enqueued so far runs to its end. If all wait for an event, pieces run until every rank's event
// is reached; the pieces that are left run in the next round, together with those enqueued by then. Ranks
// must synchronize equally often, as ranks that run the same programs do. A rank without streams is not
// waited for.
//
// A collective starts with its piece, and WaitUntil lets other pieces run until the peers have started
// theirs. (An unfinished collective keeps its thread, and another thread takes over. Only one thread runs at
// any time.)
//
// Orders in which every ready stream is equally likely seldom show a missing wait. So for each round the seed
// also draws for how many pieces the streams keep their order of precedence: from one (any ready stream,
// equally likely) to hundreds (some streams starve, and others run as far ahead as the program allows).
class SeededScheduler {
 public:
  // ranks > 0.
  SeededScheduler(int ranks, uint64_t seed);
  // All streams must have been destroyed.
  ~SeededScheduler();
  SeededScheduler(const SeededScheduler&) = delete;
  SeededScheduler& operator=(const SeededScheduler&) = delete;

  // Makes the streams of one rank. A stream's destructor drops pieces that have not started, and waits for
  // the others. The factory is valid as long as the scheduler.
  StreamFactory& streams(int rank);

  // Called by a piece of work: lets other pieces run until ready() is true. Throws std::runtime_error if no
  // other piece can run any more (a deadlock), with what every stream waits for.
  void WaitUntil(const std::function<bool()>& ready);

  // The number of pieces that ran so far, and a digest of their order. Call between rounds.
  int64_t num_pieces() const;
  uint64_t order_digest() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::device
