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

// Declares commands to CLI11, and the options that several of them have. That header costs seconds to
// compile, so only command_table.cc and command_line.cc include this one. `invocation.command` keeps the
// options of the chosen command, so it may outlive the tree.
class CommandTree {
 public:
  explicit CommandTree(Invocation& invocation) : invocation_(invocation) {}

  virtual ~CommandTree() = default;
  CommandTree(const CommandTree&) = delete;
  CommandTree& operator=(const CommandTree&) = delete;

  CLI::App& app() { return app_; }
  const CLI::App& app() const { return app_; }
  Invocation& invocation() { return invocation_; }

  // Returns the values that an option allows, for shells to complete; empty: any value.
  std::vector<std::string> ValuesOf(const CLI::Option* option) const {
    const auto known = values_.find(option);
    return known == values_.end() ? std::vector<std::string>() : known->second;
  }

 protected:
  template <typename Options>
  using Command = std::function<Outcome(Context&, const Options&)>;

  // Adds a command, and returns it and the struct that receives the values of its options.
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
          const absl::StatusOr<Address> address = ResolveAddress(context.target, context.environment);
          if (!address.ok()) {
            return Failure(kUsage, address.status().message());
          }
          Client client(*address);
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

  // Adds an option with a value, which --help shows as `type`.
  template <typename Value>
  static CLI::Option* AddValue(CLI::App* app, const std::string& name, Value& value, const std::string& type,
                               const std::string& description) {
    return app->add_option(name, value, description)->type_name(type);
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

  static void AddJobFile(CLI::App* app, JobSource& source) {
    AddValue(app, "-f,--file", source.file, "FILE", "Job file, YAML or JSON; - is standard input")
        ->required();
    AddValue(app, "--set", source.set, "FIELD=VALUE",
             "Override a field of the file: training.steps=20; may be repeated")
        ->type_size(1)
        ->allow_extra_args(false);
  }

  static CLI::Option* AddJob(CLI::App* app, std::string& job) {
    return AddValue(app, "JOB", job, "", "Id of the job, its first characters (4 or more), or its name")
        ->required();
  }

  // timeout: a duration, or std::optional of one.
  template <typename Timeout>
  static CLI::Option* AddTimeout(CLI::App* app, Timeout& timeout, const std::string& description) {
    return app
        ->add_option_function<std::string>(
            "--timeout", [&timeout](const std::string& text) { timeout = TimeoutOf(text); }, description)
        ->type_name("DURATION");
  }

  void AddTarget() {
    TargetFlags& target = invocation().target;
    AddValue(&app_, "--addr", target.addr, "ADDRESS", "Controller: HOST:PORT or unix:/PATH");
    AddValue(&app_, "--context", target.context, "NAME", "Name of a cluster in ~/.config/tandem/config.yaml");
    AddValue(&app_, "--tls-ca", target.tls.ca, "FILE",
             "CA certificates (PEM) that sign the controller's certificate");
    AddValue(&app_, "--tls-cert", target.tls.certificate, "FILE", "Your certificate (PEM)");
    AddValue(&app_, "--tls-key", target.tls.key, "FILE", "Key of --tls-cert (PEM)");
    AddValue(&app_, "--tls-server-name", target.tls.server_name, "NAME",
             "Name in the controller's certificate, where it is not the host of --addr");
  }

  template <typename Options>
  static void AddDaemons(CLI::App* app, Options& options) {
    AddValue(app, "--bin-dir", options.bin_dir, "FOLDER",
             "Folder of tandem-controller and tandem-worker (default: beside tandem)");
    app->add_option("--trainer", options.trainer, "Program that runs a rank")->group("");  // for tests
  }

 private:
  Invocation& invocation_;
  std::map<const CLI::Option*, std::vector<std::string>> values_;  // that an option allows
  CLI::App app_{"Tandem trains large language models as a service.", "tandem"};
};

// All commands and their options (command_table.cc).
std::unique_ptr<CommandTree> DeclareCommands(Invocation& invocation);

}  // namespace tandem::cli
