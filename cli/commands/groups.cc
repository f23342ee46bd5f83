// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/group_table.h"
#include "cli/terminal/number_text.h"
#include "jobspec/jobspec.h"
#include "nlohmann/json.hpp"
#include "parallel/from_spec.h"
#include "parallel/grid_sizes.h"
#include "parallel/process_groups.h"
#include "platform/counted_text.h"

namespace tandem::cli {
namespace {

// "512 ranks, order tp-cp-ep-dp-pp; tensor 8 × context 1 × data 8 × pipeline 8; experts: ..."
std::string Title(const parallel::GridSizes& sizes, const parallel::Grids& grids) {
  const auto times = [](const char* name, int size) { return absl::StrCat(" × ", name, " ", size); };
  return absl::StrCat(platform::CountedText(sizes.world, "rank"),
                      sizes.rank_offset > 0 ? absl::StrCat(" from ", sizes.rank_offset) : "", ", order ",
                      Escape(sizes.order), "\ndense    tensor ", sizes.tensor,
                      times("context", sizes.context), times("data", grids.dense_data),
                      times("pipeline", sizes.pipeline), "\nexperts  tensor ", grids.sizes.expert_tensor,
                      times("expert", sizes.expert), times("data", grids.expert_data),
                      times("pipeline", sizes.pipeline), "\n");
}

std::string GroupsJson(const parallel::GridSizes& sizes, const std::vector<parallel::GroupKind>& kinds) {
  std::string text = absl::StrCat("{\"world_size\": ", sizes.world, ", \"groups\": {");
  std::string clones;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const parallel::GroupKind& kind = kinds[i];
    absl::StrAppend(&text, i > 0 ? "," : "", "\n  \"", kind.name, "\": ", nlohmann::json(kind.groups).dump());
    if (!kind.clone_of.empty()) {
      absl::StrAppend(&clones, clones.empty() ? "" : ", ", "\"", kind.name, "\": \"", kind.clone_of, "\"");
    }
  }
  return absl::StrCat(text, "\n}, \"clone_of\": {", clones, "}}\n");
}

// Returns a field's name as the user writes it: in a job file, or as an option.
std::string Written(const std::string& field, bool in_file) {
  if (in_file) {
    return absl::StrCat("parallelism.", field == "world" ? "ranks" : field);
  }
  return field == "world" ? "--world-size" : absl::StrCat("--", absl::StrReplaceAll(field, {{"_", "-"}}));
}

}  // namespace

Outcome Groups(Context& context, const GroupsOptions& options) {
  const bool in_file = !options.file.empty();
  if (!in_file && options.sizes.world == 0) {
    return absl::InvalidArgumentError(
        "give a job file (-f FILE), or --world-size; see `tandem groups --help`");
  }
  parallel::GridSizes sizes = options.sizes;
  if (in_file) {
    // The groups depend on the grid alone, so a job that could not run is accepted; only a file that cannot
    // be read is refused.
    const jobspec::ReadResult read = jobspec::ReadFile(options.file);
    if (!read.violations.empty()) {
      context.console.Write(Stream::kErr, absl::StrCat(jobspec::ToText(read.violations)));
      return kInvalidSpec;
    }
    sizes = parallel::GridOf(jobspec::Resolve(read.spec).parallelism());
  }
  const std::vector<parallel::GridViolation> violations = parallel::CheckGrid(sizes);
  for (parallel::GridViolation violation : violations) {
    violation.field = Written(violation.field, in_file);
    Note(context.console, absl::StrCat("groups: ", Escape(parallel::ToText(violation))));
  }
  if (!violations.empty()) {
    return in_file ? kInvalidSpec : kUsage;
  }
  const absl::StatusOr<parallel::ProcessGroups> groups =
      options.names.empty() ? parallel::ProcessGroups::Make(sizes)
                            : parallel::ProcessGroups::Make(sizes, options.names);
  if (!groups.ok()) {
    return absl::InvalidArgumentError(Escape(groups.status().message()));
  }
  if (options.format == Format::kJson) {
    context.Print(GroupsJson(sizes, groups->kinds()));
    return kOk;
  }
  const int width = context.TableWidth();
  const bool unicode = context.console.unicode();
  context.Print(
      options.names.empty()
          ? absl::StrCat(Title(sizes, *parallel::MakeGrids(sizes)), "\n",
                         GroupTable(groups->kinds(), width, unicode),
                         "\n`tandem groups ... NAME` lists every group of a name; -o json lists all.\n")
          : EveryGroupTable(groups->kinds(), width, unicode));
  return kOk;
}

}  // namespace tandem::cli
