// SPDX-License-Identifier: Apache-2.0
// assay completion: a script for bash (and zsh, through its bashcompinit) that asks the program itself at
// every Tab, so the words it offers are those of this build: commands, options, values, suites, kernels,
// fields.

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <set>

#include "harness/base/error.hpp"
#include "harness/cli/null_file.hpp"
#include "harness/cli/run_options.hpp"
#include "harness/device/backend.hpp"
#include "harness/problem/names.hpp"
#include "harness/report/row.hpp"
#include "harness/run/sweep.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/suite.hpp"

namespace assay {
namespace {

using Words = std::vector<std::string>;

// COMPREPLY holds whole words; the program answers with one per line. Nothing from it: names of files.
constexpr const char* kBash = R"(_assay() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" completion words "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -o default -F _assay assay
)";
constexpr const char* kZsh = "autoload -Uz bashcompinit && bashcompinit\n";

Words kernel_names(const Words& backends) {
  Words names;
  const NullFile log;
  const RunOptions options;
  for (const BackendChoice& choice : choose_backends(backends)) {
    try {
      const Dispatcher dispatcher(worker_command(choice, options), log.fd, options);
      for (const KernelInfo& k : dispatcher.kernels()) names.push_back(k.name);
    } catch (const std::exception&) {  // a backend without a device has no kernels to offer
    }
  }
  return names;
}

// "{hot,cold}" of a list of accepted values.
Words accepted_values(const CLI::Option& option) {
  const std::string text = option.get_type_name();
  const size_t open = text.find('{'), close = text.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(text.substr(open + 1, close - open - 1), ',');
}

Words field_words() {
  Words words;
  for (const std::string_view name : field_names())
    if (name != "op") words.emplace_back(name);
  return words;
}

Words values_of(const CLI::Option& option, const Words& words) {
  const std::string name = option.get_name();
  if (name == "--kernel" || name == "--kernels") {
    Words backends;
    for (size_t i = 1; i + 1 < words.size(); ++i)
      if (words[i] == "--backend") backends.push_back(words[i + 1]);
    return kernel_names(backends);
  }
  if (name == "--backend") return installed_backends();
  if (name == "--op") {
    Words ops;
    for (const Name& op : op_names()) ops.emplace_back(op.text);
    return ops;
  }
  if (name == "--group") {
    Words groups = field_words();
    for (const char* g : {"op", "suite", "kernel", "cache", "backend", "device"}) groups.emplace_back(g);
    return groups;
  }
  if (name == "--suite") return shipped_suites();
  if (Words values = accepted_values(option); !values.empty()) return values;
  if (name == "--sort") {
    Words columns;
    for (const RowField& field : row_fields()) columns.emplace_back(field.name);
    return columns;
  }
  return {};
}

// A scenario line that is being typed in quotes: its op, then fields. Whole lines, as bash replaces the whole
// word.
Words line_words(const std::string& typed) {
  const size_t space = typed.rfind(' ');
  const std::string before = space == std::string::npos ? "" : typed.substr(0, space + 1);
  Words words;
  if (before.empty())
    for (const Name& op : op_names()) words.push_back(std::string(op.text) + " ");
  else
    for (const std::string& field : field_words()) words.push_back(before + field + "=");
  return words;
}

Words candidates(const Words& words, size_t index) {
  CLI::App app;
  const std::vector<Command> commands = add_commands(app);
  Words names;
  for (const Command& c : commands) names.push_back(c.app->get_name());
  if (index == 1) return names;
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const Command& c) { return c.app->get_name() == words[1]; });
  if (command == commands.end()) return {};
  const std::string& current = words[index];
  if (current.starts_with('-')) {
    Words options;
    for (const CLI::Option* option : command->app->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    return options;
  }
  for (const CLI::Option* option : command->app->get_options())
    if (option->check_name(words[index - 1]) && option->get_items_expected_max() > 0 &&
        !option->get_positional())
      return values_of(*option, words);
  if (words[1] == "completion") return {"bash", "zsh"};
  if (words[1] == "describe" && index > 2 && words[2] == "fields") return field_words();
  if (!command->app->get_option_no_throw("suites")) return {};
  if (current.starts_with('\'') || current.starts_with('"')) return line_words(current.substr(1));
  Words suites = shipped_suites();
  if (words[1] == "describe" && index == 2) suites.emplace_back("fields");
  return suites;
}

}  // namespace

int complete(int argc, char** argv) {
  size_t index = 0;
  if (argc < 5) return kExitUsage;
  const std::string number = argv[3];
  std::from_chars(number.data(), number.data() + number.size(), index);
  Words words(argv + 4, argv + argc);
  if (index < 1) return kExitUsage;
  words.resize(std::max(words.size(), index + 1));
  std::string typed = words[index];
  if (typed.starts_with('\'') || typed.starts_with('"')) typed.erase(0, 1);
  std::set<std::string> matching;
  for (const std::string& word : candidates(words, index))
    if (word.starts_with(typed)) matching.insert(word);
  for (const std::string& word : matching) fmt::print("{}\n", word);
  return kExitOk;
}

Command add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "a script that completes commands, options and names on Tab");
  completion->add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  completion->footer(
      "Put the line of your shell into its start file.\nExamples:\n  eval \"$(assay completion bash)\"\n"
      "  eval \"$(assay completion zsh)\"");
  return {completion, [shell](const auto&) {
            fmt::print("{}{}", *shell == "zsh" ? kZsh : "", kBash);
            return kExitOk;
          }};
}

}  // namespace assay
