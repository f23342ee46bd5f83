// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensorboard_file.h"

#include <unistd.h>

#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "platform/host.h"
#include "platform/status_macros.h"
#include "trainer/failure.h"
#include "trainer/tensorboard.pb.h"

namespace tandem::trainer {
namespace {

constexpr int32_t kStart = 1;  // SessionLog.SessionStatus

// Castagnoli's, bit by bit over a table of bytes; nothing that is linked here has one.
uint32_t Crc32c(std::string_view data) {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < out.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
      }
      out[i] = value;
    }
    return out;
  }();
  uint32_t crc = 0xffffffffu;
  for (const char c : data) {
    crc = table[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

uint32_t MaskedCrc(std::string_view data) {
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Integer>
void AppendLittleEndian(Integer value, std::string& out) {
  for (size_t i = 0; i < sizeof(value); ++i) {
    out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
}

std::string TagOf(const std::string& scalar) {
  constexpr std::string_view kOfText = "validation_loss/";
  if (scalar.starts_with(kOfText)) {
    return absl::StrCat("validation_metrics/global_avg_loss/", scalar.substr(kOfText.size()));
  }
  return scalar == "validation_loss"           ? "validation_metrics/global_avg_loss"
         : scalar == "tokens_per_second"       ? "throughput(tps)"
         : scalar == "model_flops_utilization" ? "mfu(%)"
                                               : absl::StrCat("scalars/", scalar);
}

TensorBoardEvent EventAt(absl::Time now) {
  TensorBoardEvent event;
  event.set_wall_time(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  return event;
}

std::string RecordOf(const TensorBoardEvent& event) { return TensorBoardRecord(event.SerializeAsString()); }

constexpr char kPrefix[] = "events.out.tfevents.";

// The newest time in the names of a folder's files; the distant past where none has one.
absl::StatusOr<absl::Time> NewestTime(platform::Files& files, const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  absl::Time newest = absl::InfinitePast();
  for (absl::string_view name : names) {
    int64_t seconds = 0;
    if (absl::ConsumePrefix(&name, kPrefix) && absl::SimpleAtoi(name.substr(0, name.find('.')), &seconds)) {
      newest = std::max(newest, absl::FromUnixSeconds(seconds));
    }
  }
  return newest;
}

// A file of its own for every start, below the job's directory, whose name comes behind all others.
absl::StatusOr<FollowedFile::Place> NewFile(platform::Files& files, const platform::Clock& clock,
                                            const std::string& directory, int64_t first_step,
                                            absl::Duration& ahead) {
  const std::string folder = directory + "/tensorboard";
  TANDEM_RETURN_IF_ERROR(files.CreateFolder(folder));
  TANDEM_ASSIGN_OR_RETURN(const absl::Time newest, NewestTime(files, folder));
  if (clock.Now() + ahead <= newest) {
    ahead = newest + absl::Seconds(1) - clock.Now();
  }
  const absl::Time now = clock.Now() + ahead;
  TensorBoardEvent version = EventAt(now);
  version.set_file_version("brain.Event:2");
  // TensorBoard reads files in the order of their names.
  return FollowedFile::Place{
      .path = absl::StrFormat("%s/%s%010d.%s.%d.%d", folder, kPrefix, absl::ToUnixSeconds(now),
                              platform::HostName(), getpid(), first_step),
      .header = RecordOf(version)};
}

}  // namespace

std::string TensorBoardRecord(std::string_view data) {
  std::string out;
  AppendLittleEndian(uint64_t{data.size()}, out);
  AppendLittleEndian(MaskedCrc(out), out);
  out.append(data);
  AppendLittleEndian(MaskedCrc(data), out);
  return out;
}

TensorBoardFile::TensorBoardFile(platform::Files& files, const platform::Clock& clock,
                                 const std::string& directory, checkpoint::Owner self, int64_t first_step)
    : clock_(clock), file_(files, directory, std::move(self), "TensorBoard's events", [=, this, &files] {
        return NewFile(files, clock_, directory, first_step, ahead_);
      }) {
  ThrowIfUnwritable("cannot keep TensorBoard's events there", file_.Open());
  TensorBoardEvent start = EventAt(Now());
  start.set_step(first_step);
  start.mutable_session_log()->set_status(kStart);
  file_.Append(RecordOf(start));
}

void TensorBoardFile::Append(const v1::StepReport& report) {
  TensorBoardEvent event = EventAt(Now());
  event.set_step(report.step());
  const auto add = [&event](const std::string& tag, double value) {
    TensorBoardEvent::Summary::Value& added = *event.mutable_summary()->add_value();
    added.set_tag(tag);
    added.set_simple_value(static_cast<float>(value));
  };
  if (report.step() > 0) {  // step 0 is the validation before the first step
    add("loss_metrics/global_avg_loss", report.loss());
    add("grad_norm", report.grad_norm());
    add("lr", report.learning_rate());
    add("time_metrics/end_to_end(s)", report.seconds());
  }
  // In the order of their names.
  for (const auto& [name, value] :
       std::map<std::string, double>(report.scalars().begin(), report.scalars().end())) {
    add(TagOf(name), name == "model_flops_utilization" ? 100 * value : value);
  }
  file_.Append(RecordOf(event));
}

}  // namespace tandem::trainer
