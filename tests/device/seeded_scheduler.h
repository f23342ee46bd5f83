// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/stream.h"

namespace tandem::device {

// The streams of all ranks of a process, run one piece of work at a time: which ready piece is
// next is drawn from a seed. A piece is ready when what its stream waits for is reached. The same seed and
// the same program give the same order, so an order that shows a fault can be run again.
//
// Nothing starts before every rank synchronizes one of its streams. Then, if one of them synchronizes all of
// a stream, everything enqueued so far runs to its end; if all wait for an event, pieces run until every
// rank's is reached, and what is left goes on in the next round beside what is issued by then. Ranks must
// synchronize equally often, as ranks that run the same programs do. A rank whose streams are all gone is not
// waited for.
//
// A collective is two events, not one: it starts when its piece does, and WaitUntil lets any other piece run
// until the peers have come. (Each unfinished collective keeps the thread that it is on; another one takes
// over. Only one of them runs at any time.)
//
// Orders that are merely fair seldom show a missing wait. So for each round the seed also draws how long the
// streams keep their ranks of precedence: from one piece (any ready stream, equally likely) to hundreds
// (streams starve, and others run as far ahead of them as the program lets them).
class SeededScheduler {
 public:
  // ranks > 0.
  SeededScheduler(int ranks, uint64_t seed);
  // Every stream is gone.
  ~SeededScheduler();
  SeededScheduler(const SeededScheduler&) = delete;
  SeededScheduler& operator=(const SeededScheduler&) = delete;

  // The streams of one rank. Their destruction drops what is enqueued and has not started, and waits for the
  // rest. Lives as long as the scheduler.
  StreamFactory& streams(int rank);

  // Called by a piece of work: others run until ready() is true. Throws std::runtime_error in a piece that
  // nothing can make ready any more, with what every stream waits for.
  void WaitUntil(const std::function<bool()>& ready);

  // Pieces that ran so far, and a digest of their order. Call between runs.
  int64_t num_pieces() const;
  uint64_t order_digest() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::device
