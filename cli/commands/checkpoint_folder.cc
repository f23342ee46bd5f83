// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/checkpoint_folder.h"

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "cli/cluster/address.h"
#include "cli/cluster/client.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/files.h"
#include "platform/status_macros.h"

namespace tandem::cli {

bool IsStepFolder(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(folder, "/", checkpoint::kManifestName), error);
}

absl::StatusOr<std::string> CheckpointFolder(Context& context, const std::string& job) {
  std::error_code error;
  if (std::filesystem::is_directory(job, error)) {
    const std::filesystem::path path = std::filesystem::canonical(job, error);
    return error ? job : path.string();
  }
  if (job.find('/') != job.npos) {
    return Failure(kNotFound, absl::StrCat(context.what, ": there is no such folder"));
  }
  const absl::StatusOr<Address> address = ResolveAddress(context.target, context.environment);
  if (!address.ok()) {
    return Failure(kUsage, absl::StrCat(address.status().message(), "; there is no folder ", Escape(job),
                                        " here either"));
  }
  Client client(*address);
  const absl::StatusOr<v1::Job> found = client.GetJob(job);
  if (!found.ok()) {
    return CallFailure(found.status(), context.what, client.address());
  }
  const std::string& directory = found->resolved().checkpoint().directory();
  if (directory.empty()) {
    return Failure(kFailed, absl::StrCat(context.what, ": it saves no checkpoints (checkpoint.directory)"));
  }
  if (!std::filesystem::is_directory(directory, error)) {
    return Failure(kNotFound, absl::StrCat(context.what, ": its checkpoints are in ", Escape(directory),
                                           ", which this machine does not see: use one that does"));
  }
  return directory;
}

absl::StatusOr<std::string> StepFolderIn(Context& context, const std::string& folder,
                                         const std::optional<int64_t>& step) {
  if (IsStepFolder(folder)) {
    if (step.has_value()) {
      return Failure(kUsage,
                     absl::StrCat("--step: ", Escape(folder), " is one step already: omit the option"));
    }
    return folder;
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                          checkpoint::ListSteps(platform::SystemFiles(), folder));
  if (steps.empty()) {
    return Failure(kNotFound, absl::StrCat(context.what, ": there is no checkpoint in ", Escape(folder)));
  }
  const std::string path = absl::StrCat(folder, "/", checkpoint::StepName(step.value_or(steps.front())));
  if (!IsStepFolder(path)) {
    return Failure(kNotFound, absl::StrCat(context.what, ": there is no checkpoint ", Escape(path),
                                           "; the newest is step ", steps.front()));
  }
  return path;
}

}  // namespace tandem::cli
