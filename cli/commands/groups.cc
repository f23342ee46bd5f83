#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/commands/job_file.h"
#include "cli/terminal/error.h"
#include "cli/terminal/rank_list.h"
#include "cli/terminal/table.h"
#include "nlohmann/json.hpp"
#include "parallel/process_groups.h"

namespace tandem::cli {
namespace {

parallel::GridSizes GridOf(const v1::Parallelism& spec) {
  return {.world = spec.ranks(),
          .tensor = spec.tensor(),
          .context = spec.context(),
          .pipeline = spec.pipeline(),
          .expert = spec.expert(),
          .expert_tensor = spec.expert_tensor(),
          .replicas = spec.replicas(),
          .order = spec.order()};
}

}  // namespace

int Groups(Context& context, const FileOptions& options) {
  // Groups need no data, wherever it is.
  const std::optional<JobFile> job = LoadJobFile(context, options.file, /*name=*/"", std::nullopt);
  if (!job.has_value()) {
    return kInvalidSpec;
  }
  const absl::StatusOr<std::vector<parallel::Group>> groups =
      parallel::AllProcessGroups(GridOf(job->resolved.parallelism()));
  if (!groups.ok()) {
    return Fail(context.console, kInvalidSpec,
                absl::StrCat("groups: parallelism: ", groups.status().message()));
  }
  if (options.format == Format::kJson) {
    std::string text = "[";
    for (size_t i = 0; i < groups->size(); ++i) {
      const parallel::Group& group = (*groups)[i];
      nlohmann::ordered_json row = {{"index", i}, {"name", group.name}, {"ranks", group.ranks}};
      if (group.clone_of >= 0) {
        row["clone_of"] = group.clone_of;
      }
      absl::StrAppend(&text, i > 0 ? ",\n" : "\n", row.dump());
    }
    context.console.Write(Stream::kOut, text + "\n]\n");
    return kOk;
  }
  Table table({{.heading = "INDEX", .align = Table::Align::kRight},
               {.heading = "GROUP"},
               {.heading = "SIZE", .align = Table::Align::kRight},
               {.heading = "RANKS", .shrinks = true},
               {.heading = "CLONE OF", .align = Table::Align::kRight}});
  for (size_t i = 0; i < groups->size(); ++i) {
    const parallel::Group& group = (*groups)[i];
    table.Add({absl::StrCat(i), group.name, absl::StrCat(group.ranks.size()), RankList(group.ranks),
               group.clone_of >= 0 ? absl::StrCat(group.clone_of) : ""});
  }
  context.console.Write(Stream::kOut, table.Render(TableWidth(context), context.console.unicode()));
  return kOk;
}

}  // namespace tandem::cli
