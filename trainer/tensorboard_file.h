// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "checkpoint/owner.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "tandem/v1/report.pb.h"
#include "trainer/followed_file.h"

namespace tandem::trainer {

// One record of an event file, little-endian: length, masked CRC-32C of the length, data, masked CRC-32C of
// the data.
std::string TensorBoardRecord(std::string_view data);

// The events of this start of a job in `DIRECTORY/tensorboard`, for `tensorboard --logdir DIRECTORY`: loss,
// gradient norm, learning rate, speed and scalars of every step, under torchtitan's tags.
//
// Every start writes its own file. TensorBoard reads files in the order of their names, which begin with a
// time, and drops steps of older files that a later file repeats. If this machine's clock is behind the time
// of an older file, the name and the events get later times than that file's. Rank 0 writes the file, from
// one thread. If it is removed or renamed while the job runs, later events are written to a file with a new
// name (followed_file.h).
class TensorBoardFile {
 public:
  // Throws as ThrowIfUnwritable (failure.h), naming the folder, if it cannot be written or the
  // directory does not exist. `first_step` is the first step that will be written. `files` and `clock`
  // outlive this object.
  TensorBoardFile(platform::Files& files, const platform::Clock& clock, const std::string& directory,
                  checkpoint::Owner self, int64_t first_step);
  TensorBoardFile(const TensorBoardFile&) = delete;
  TensorBoardFile& operator=(const TensorBoardFile&) = delete;

  // Appends whole records or nothing. A failure is logged once and training continues.
  void Append(const v1::StepReport& report);

 private:
  absl::Time Now() const { return clock_.Now() + ahead_; }

  const platform::Clock& clock_;
  absl::Duration ahead_;  // added to the clock so that no file has the time of an older one
  FollowedFile file_;
};

}  // namespace tandem::trainer
