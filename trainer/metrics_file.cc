#include "trainer/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "platform/log.h"

namespace tandem::trainer {
namespace {

void ThrowIfNotOk(const absl::Status& status) {
  if (!status.ok()) {
    throw std::runtime_error(std::string(status.message()));
  }
}

// The lines of steps up to last_step, whole ones only.
std::string Cut(const std::string& content, int64_t last_step) {
  std::string kept;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
        object["step"].get<int64_t>() <= last_step) {
      kept += line;
      kept += '\n';
    }
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(platform::Files& files, const std::string& directory, int64_t resumed_step)
    : path_(directory + "/metrics.jsonl") {
  ThrowIfNotOk(files.CreateFolders(directory));
  const absl::StatusOr<std::string> content = files.Read(path_);
  if (content.ok()) {
    ThrowIfNotOk(platform::ReplaceFile(files, path_, Cut(*content, resumed_step)));
  } else if (!absl::IsNotFound(content.status())) {
    ThrowIfNotOk(content.status());
  }
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw std::runtime_error("open " + path_ + ": " + std::strerror(errno));
  }
}

MetricsFile::~MetricsFile() { close(fd_); }

void MetricsFile::Append(const StepSummary& summary) {
  nlohmann::ordered_json line = {{"step", summary.step}};
  if (summary.step > 0) {  // step 0 is the validation before the first step
    line.update({{"loss", summary.loss},
                 {"grad_norm", summary.grad_norm},
                 {"learning_rate", summary.learning_rate},
                 {"tokens", summary.tokens},
                 {"seconds", summary.seconds},
                 {"nonfinite", summary.nonfinite}});
  }
  for (const auto& [name, value] : summary.scalars) {
    line[name] = value;
  }
  const std::string text = line.dump() + "\n";
  const ssize_t written = write(fd_, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) && !complained_) {
    complained_ = true;
    platform::Log(platform::LogLevel::kError, "cannot write metrics; training goes on without them",
                  {{"path", path_}, {"error", written < 0 ? std::strerror(errno) : "short write"}});
  }
}

}  // namespace tandem::trainer
