// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/commands/command_line.h"
#include "cli/terminal/display_text.h"
#include "platform/status_macros.h"

namespace tandem::cli {

// Accepts integers from `least` on. CLI11's own check of positive numbers shows the largest double as the
// limit.
inline CLI::Validator AtLeast(int64_t least) {
  return CLI::Validator(
      [least](const std::string& text) {
        int64_t value = 0;
        return absl::SimpleAtoi(text, &value) && value >= least
                   ? std::string()
                   : absl::StrCat("\"", text, "\" must be an integer ≥ ", least);
      },
      absl::StrCat(">= ", least));
}

// Parses the value of --timeout. Throws CLI::ValidationError.
inline absl::Duration TimeoutOf(const std::string& text) {
  absl::Duration timeout;
  if (!absl::ParseDuration(text, &timeout) || timeout < absl::ZeroDuration()) {
    throw CLI::ValidationError("--timeout",
                               absl::StrCat("\"", text, "\" is not a duration; write 30s, 10m or 2h"));
  }
  return timeout;
}

// Adds an option with a value, which --help shows as `type`.
template <typename Value>
CLI::Option* AddValue(CLI::App* app, const std::string& name, Value& value, const std::string& type,
                      const std::string& description) {
  return app->add_option(name, value, description)->type_name(type);
}

inline void AddJobFile(CLI::App* app, JobSource& source) {
  AddValue(app, "-f,--file", source.file, "FILE", "Job file, YAML or JSON; - is standard input")->required();
  AddValue(app, "--set", source.set, "FIELD=VALUE",
           "Override a field of the file: training.steps=20; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false);
}

inline CLI::Option* AddJob(CLI::App* app, std::string& job) {
  return AddValue(app, "JOB", job, "", "Id of the job, its first characters (4 or more), or its name")
      ->required();
}

// timeout: a duration, or std::optional of one.
template <typename Timeout>
CLI::Option* AddTimeout(CLI::App* app, Timeout& timeout, const std::string& description) {
  return app
      ->add_option_function<std::string>(
          "--timeout", [&timeout](const std::string& text) { timeout = TimeoutOf(text); }, description)
      ->type_name("DURATION");
}

template <typename Options>
void AddDaemons(CLI::App* app, Options& options) {
  AddValue(app, "--bin-dir", options.bin_dir, "FOLDER",
           "Folder of tandem-controller and tandem-worker (default: beside tandem)");
  app->add_option("--trainer", options.trainer, "Program that runs a rank")->group("");  // for tests
}

// All commands and their options, as CLI11 has them. CLI11's header takes seconds to compile, so only
// command_table.cc and command_line.cc include this header.
class CommandTree {
 public:
  // Declares all commands (command_table.cc). The chosen command becomes `invocation.command`, which keeps
  // its options and may outlive the tree.
  explicit CommandTree(Invocation& invocation);

  CLI::App& app() { return app_; }
  const CLI::App& app() const { return app_; }

  // Returns the values that an option allows, for shells to complete; empty: any value.
  std::vector<std::string> ValuesOf(const CLI::Option* option) const {
    const auto known = values_.find(option);
    return known == values_.end() ? std::vector<std::string>() : known->second;
  }

  template <typename Options>
  using Command = std::function<Outcome(Context&, const Options&)>;

  // Adds a command. Returns it, and the struct that receives the values of the command's options.
  template <typename Options>
  std::pair<CLI::App*, std::shared_ptr<Options>> Add(const std::string& name, const std::string& description,
                                                     Command<Options> command, CLI::App* parent = nullptr) {
    auto options = std::make_shared<Options>();
    CLI::App* added = (parent == nullptr ? &app_ : parent)->add_subcommand(name, description);
    added->fallthrough();
    const std::string what = (parent == nullptr ? "" : parent->get_name() + " ") + name;
    added->callback([this, options, command, what] {
      invocation_.command = [options, command, what](Context& context) -> int {
        context.what = what;
        if constexpr (requires { options->job; }) {
          context.what += (options->job.empty() ? "" : " ") + Escape(options->job);
        }
        const Outcome ended = command(context, *options);
        return ended.ok() ? *ended : Fail(context.console, ended.status(), context.what);
      };
    });
    return {added, options};
  }

  // Adds a command that calls a controller.
  template <typename Options>
  std::pair<CLI::App*, std::shared_ptr<Options>> Add(const std::string& name, const std::string& description,
                                                     Outcome (*command)(Context&, Client&, const Options&),
                                                     CLI::App* parent = nullptr) {
    return Add<Options>(
        name, description,
        [command](Context& context, const Options& options) -> Outcome {
          TANDEM_ASSIGN_OR_RETURN(const Address address, ResolveAddress(context.target, context.environment));
          Client client(address);
          Outcome ended = command(context, client, options);
          return ended.ok() ? ended : CallFailure(ended.status(), context.what, client.address());
        },
        parent);
  }

  // Adds the first word of commands of two words: `get` of `get jobs`.
  CLI::App* AddFamily(const std::string& name, const std::string& description) {
    CLI::App* added = app_.add_subcommand(name, description);
    added->require_subcommand(1);
    added->fallthrough();
    return added;
  }

  // Records the values that an option allows, for shells to complete.
  void Offer(const CLI::Option* option, std::vector<std::string> values) {
    values_[option] = std::move(values);
  }

  // Adds an option that allows only some values, which shells complete.
  CLI::Option* AddChoice(CLI::App* app, const std::string& name, std::string& value, const std::string& type,
                         const std::string& description, const std::vector<std::string>& allowed) {
    CLI::Option* option = AddValue(app, name, value, type, description)->check(CLI::IsMember(allowed));
    Offer(option, allowed);
    return option;
  }

  CLI::Option* AddFormat(CLI::App* app, Format& format, const std::vector<std::string>& allowed) {
    static const auto& formats = *new std::map<std::string, Format>{{"table", Format::kTable},
                                                                    {"json", Format::kJson},
                                                                    {"yaml", Format::kYaml},
                                                                    {"name", Format::kName},
                                                                    {"text", Format::kText}};
    CLI::Option* option =
        app->add_option_function<std::string>(
               "-o,--output", [&format](const std::string& text) { format = formats.at(text); },
               "Output: " + absl::StrJoin(allowed, ", "))
            ->check(CLI::IsMember(allowed))
            ->type_name("FORMAT");
    Offer(option, allowed);
    return option;
  }

 private:
  Invocation& invocation_;
  std::map<const CLI::Option*, std::vector<std::string>> values_;  // that an option allows
  CLI::App app_{"Tandem trains large language models as a service.", "tandem"};
};

}  // namespace tandem::cli
