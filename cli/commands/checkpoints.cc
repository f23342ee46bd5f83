// SPDX-License-Identifier: Apache-2.0
// The commands `tandem checkpoint ...`, except `now`. They read the folders of the machine on which they run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/owner.h"
#include "checkpoint/retention.h"
#include "checkpoint/saved_step.h"
#include "cli/commands/checkpoint_folder.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/number_text.h"
#include "cli/terminal/table.h"
#include "fsdp/slice.h"
#include "platform/files.h"
#include "platform/random.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

using checkpoint::Manifest;
using checkpoint::ManifestArray;
using checkpoint::ManifestFile;
using checkpoint::SavedStep;

constexpr int64_t kElementsAtOnce = 1 << 20;

// Returns the folders of the steps that the options select: one, or all, newest first.
absl::StatusOr<std::vector<std::string>> StepsNamed(Context& context,
                                                    const CheckpointFolderOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::string folder, CheckpointFolder(context, options.job));
  if (options.step.has_value() || IsStepFolder(folder)) {
    TANDEM_ASSIGN_OR_RETURN(const std::string step, StepFolderIn(context, folder, options.step));
    return std::vector{step};
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                          checkpoint::ListSteps(platform::SystemFiles(), folder));
  if (steps.empty()) {
    return Failure(kNotFound, absl::StrCat(context.what, ": there is no checkpoint in ", Escape(folder)));
  }
  std::vector<std::string> paths;
  for (const int64_t step : steps) {
    paths.push_back(absl::StrCat(folder, "/", checkpoint::StepName(step)));
  }
  return paths;
}

// Returns the manifest, if the files that it lists are there with their sizes.
absl::StatusOr<Manifest> Complete(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, checkpoint::ReadFolderManifest(platform::SystemFiles(), path));
  for (const ManifestFile& file : manifest.files) {
    TANDEM_RETURN_IF_ERROR(checkpoint::CheckSize(platform::SystemFiles(), path, file));
  }
  return manifest;
}

absl::Status Verified(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const SavedStep step, SavedStep::Open(platform::SystemFiles(), path));
  return step.Verify();
}

int64_t ElementsOf(const ManifestArray& array) { return *fsdp::NumElements(array.shape); }

// Returns what a table shows of a step that cannot be read.
std::string ProblemText(const absl::Status& error) {
  const char* const problem = checkpoint::IsDamage(error)    ? "damaged"
                              : absl::IsUnimplemented(error) ? "newer than this build"
                                                             : "not readable";
  return absl::StrCat(problem, ": ", Escape(error.message()));
}

// Returns the number of a step, or the name of its folder if it was renamed.
std::string StepText(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::optional<int64_t> step = checkpoint::StepOfName(name);
  return step.has_value() ? absl::StrCat(*step) : Escape(name);
}

std::string NameOf(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// The difference between two arrays, in double. NaN in both at one place is no difference.
struct Difference {
  double squares = 0;  // of b - a
  double squares_of_a = 0;
  double largest = 0;
  bool same_bits = true;
};

template <typename T>
void Add(const std::string& a, const std::string& b, Difference& difference) {
  for (size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    T of_a;
    T of_b;
    std::memcpy(&of_a, a.data() + at, sizeof(T));
    std::memcpy(&of_b, b.data() + at, sizeof(T));
    const double change = of_a == of_b || (std::isnan(of_a) && std::isnan(of_b))
                              ? 0
                              : static_cast<double>(of_b) - static_cast<double>(of_a);
    difference.squares += change * change;
    difference.squares_of_a += static_cast<double>(of_a) * static_cast<double>(of_a);
    difference.largest = std::isnan(change) ? change : std::max(difference.largest, std::abs(change));
  }
}

absl::StatusOr<Difference> Compare(const SavedStep& a, const ManifestArray& of_a, const SavedStep& b,
                                   const ManifestArray& of_b) {
  Difference difference;
  const int64_t elements = ElementsOf(of_a);
  for (int64_t begin = 0; begin < elements; begin += kElementsAtOnce) {
    const int64_t count = std::min(kElementsAtOnce, elements - begin);
    TANDEM_ASSIGN_OR_RETURN(const std::string bytes, a.Read(of_a, begin, count));
    TANDEM_ASSIGN_OR_RETURN(const std::string others, b.Read(of_b, begin, count));
    difference.same_bits = difference.same_bits && bytes == others;
    if (of_a.dtype == "F32") {
      Add<float>(bytes, others, difference);
    } else if (of_a.dtype == "F64") {
      Add<double>(bytes, others, difference);
    }
  }
  return difference;
}

// Whether the arrays have the same elements. In manifests of version 2 arrays have no shape.
bool IsAlike(const ManifestArray& a, const ManifestArray& b) {
  return a.dtype == b.dtype && (checkpoint::Holds(a, b.shape) || checkpoint::Holds(b, a.shape));
}

std::string TypeText(const ManifestArray& array) {
  return absl::StrCat(array.dtype, " ", checkpoint::ShapeText(array.shape));
}

std::string RatioText(const Difference& difference) {
  return difference.squares_of_a == 0
             ? "-"
             : ScientificText(std::sqrt(difference.squares / difference.squares_of_a));
}

// "from step 101 in batches of 64: books 400 of 1,000 sequences, weight 70.0 %; ..."
std::string SegmentText(const checkpoint::DataSegment& segment) {
  double weights = 0;
  for (const checkpoint::TextPosition& text : segment.sources) {
    weights += static_cast<double>(text.weight);
  }
  std::vector<std::string> texts;
  for (const checkpoint::TextPosition& text : segment.sources) {
    texts.push_back(absl::StrFormat("%s up to sequence %d (%d an epoch), weight %.1f %%",
                                    text.name.empty() ? "the text" : text.name, text.taken, text.windows,
                                    100 * static_cast<double>(text.weight) / weights));
  }
  return absl::StrCat("from step ", segment.from_step + 1, " in batches of ", segment.global_batch_size, ": ",
                      absl::StrJoin(texts, "; "));
}

}  // namespace

Outcome ListCheckpoints(Context& context, const CheckpointFolderOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> paths, StepsNamed(context, options));
  Table table({Right("STEP"), "JOB", Right("ATTEMPT"), Right("SIZE"), Shrinking("FILES")});
  for (const std::string& path : paths) {
    const absl::StatusOr<Manifest> manifest = Complete(path);
    const std::string step = StepText(path);
    if (!manifest.ok()) {
      table.Add({step, "-", "-", "-", ProblemText(manifest.status())});
      continue;
    }
    table.Add({step, manifest->info.job, absl::StrCat(manifest->info.attempt),
               BytesText(checkpoint::TotalBytes(manifest->files)),
               absl::StrCat(manifest->files.size(), " complete")});
  }
  context.Print(table);
  return kOk;
}

Outcome ShowCheckpoint(Context& context, const CheckpointFolderOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::string folder, CheckpointFolder(context, options.job));
  TANDEM_ASSIGN_OR_RETURN(const std::string path, StepFolderIn(context, folder, options.step));
  const absl::StatusOr<Manifest> read = Complete(path);
  if (!read.ok()) {
    return Failure(kFailed, absl::StrCat(context.what, ": ", read.status().message()));
  }
  const checkpoint::Info& info = read->info;
  int64_t parameters = 0;
  for (const ManifestArray& array : read->arrays) {
    parameters += array.kind == checkpoint::kWeight ? ElementsOf(array) : 0;
  }
  std::string text;
  const auto row = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      absl::StrAppendFormat(&text, "%-18s %s\n", name, Escape(value));
    }
  };
  row("step", absl::StrCat(info.step));
  row("job", absl::StrCat(info.job, ", attempt ", info.attempt));
  row("size",
      absl::StrCat(BytesText(checkpoint::TotalBytes(read->files)), " in ", read->files.size(), " files"));
  row("parameters", absl::StrCat(parameters));
  row("tokens", info.global_batch_size > 0
                    ? absl::StrCat(info.step * info.global_batch_size * info.sequence_length)
                    : "");
  row("batch", info.global_batch_size > 0
                   ? absl::StrCat(info.global_batch_size, " sequences of ", info.sequence_length, " tokens")
                   : "");
  row("skipped steps", info.skipped_steps > 0 ? absl::StrCat(info.skipped_steps) : "");
  row("seed", info.seed.has_value() ? absl::StrCat(*info.seed) : "");
  row("started from", info.origin.has_value() ? info.origin->path : "");
  row("specification", info.spec_digest);
  row("text", info.data_digest);
  row("contents of text", info.data_content_digest);
  for (const checkpoint::DataSegment& segment : info.data) {
    row(segment.from_step == 0 ? "read" : "then read", SegmentText(segment));
  }
  row("model", info.model);
  context.Print(text);
  return kOk;
}

Outcome VerifyCheckpoints(Context& context, const CheckpointFolderOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> paths, StepsNamed(context, options));
  bool all = true;
  for (const std::string& path : paths) {
    const absl::Status verified = Verified(path);
    all = all && verified.ok();
    context.Print(absl::StrCat(NameOf(path), ": ", verified.ok() ? "whole" : ProblemText(verified), "\n"));
  }
  return all ? kOk : kFailed;
}

Outcome DiffCheckpoints(Context& context, const CheckpointDiffOptions& options) {
  std::vector<SavedStep> steps;
  for (const std::string* const named : {&options.a, &options.b}) {
    TANDEM_ASSIGN_OR_RETURN(const std::string folder, CheckpointFolder(context, *named));
    TANDEM_ASSIGN_OR_RETURN(const std::string path, StepFolderIn(context, folder, std::nullopt));
    absl::StatusOr<SavedStep> step = SavedStep::Open(platform::SystemFiles(), path);
    if (!step.ok()) {
      return Failure(kFailed, absl::StrCat(context.what, ": ", step.status().message()));
    }
    steps.push_back(*std::move(step));
  }
  const SavedStep& a = steps[0];
  const SavedStep& b = steps[1];
  Table table({ShrinkingLeft("ARRAY"), Right("CHANGE"), Right("RELATIVE"), Right("LARGEST"), "BITS"});
  bool equal = true;
  for (const ManifestArray& array : a.manifest().arrays) {
    const std::string name = checkpoint::TensorName(array.name, array.kind);
    const ManifestArray* const other = b.Find(name);
    if (other == nullptr || !IsAlike(array, *other)) {
      equal = false;
      table.Add({name, "-", "-", "-",
                 other == nullptr ? "only in the first"
                                  : absl::StrCat(TypeText(array), " and ", TypeText(*other))});
      continue;
    }
    const absl::StatusOr<Difference> difference = Compare(a, array, b, *other);
    if (!difference.ok()) {
      return Failure(kFailed, absl::StrCat(context.what, ": ", difference.status().message()));
    }
    equal = equal && difference->same_bits;
    if (!difference->same_bits) {
      table.Add({name, ScientificText(std::sqrt(difference->squares)), RatioText(*difference),
                 ScientificText(difference->largest), "differ"});
    }
  }
  for (const ManifestArray& array : b.manifest().arrays) {
    if (const std::string name = checkpoint::TensorName(array.name, array.kind); a.Find(name) == nullptr) {
      equal = false;
      table.Add({name, "-", "-", "-", "only in the second"});
    }
  }
  context.Print(equal ? "every array has the same bits\n" : context.Rendered(table));
  return equal ? kOk : kFailed;
}

Outcome DeleteCheckpoint(Context& context, const CheckpointDeleteOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::string folder, CheckpointFolder(context, options.job));
  if (!options.step.has_value() && !IsStepFolder(folder)) {
    return Failure(kUsage, absl::StrCat(context.what, ": name the step: --step N, or its folder"));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string named, StepFolderIn(context, folder, options.step));
  // Follows links: a job that still needs the step owns the directory to which they lead.
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(named, error);
  const std::string directory = path.parent_path();
  const std::string name = path.filename();
  const std::optional<int64_t> step = checkpoint::StepOfName(name);
  if (error || !step.has_value()) {
    return Failure(kUsage,
                   absl::StrCat(context.what, ": ", Escape(error ? named : path.string()),
                                " is no step of a checkpoint directory (step-N); nothing is deleted"));
  }
  const checkpoint::Owner self{.job = platform::SystemRandom().HexId(12), .name = "tandem checkpoint delete"};
  const absl::Status removed =
      checkpoint::DeleteStep(platform::SystemFiles(), directory, *step, self, options.all,
                             [] { absl::SleepFor(checkpoint::kRenewal); });
  if (!removed.ok()) {
    return Failure(kFailed, absl::StrCat(context.what, ": ", removed.message()));
  }
  context.Print(absl::StrCat("deleted ", name, "\n"));
  return kOk;
}

}  // namespace tandem::cli
