// SPDX-License-Identifier: Apache-2.0
// The command line as a whole: which commands there are, words that are none, and exceptions turned into
// messages and exit codes. Options and help of a command stand in its own file.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "harness/base/error.hpp"
#include "harness/base/input_errors.hpp"
#include "harness/base/program.hpp"
#include "harness/cli/commands.hpp"
#include "harness/device/not_a_backend.hpp"
#include "harness/report/text.hpp"
#include "harness/run/machine.hpp"
#include "harness/scenario/text.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    "Exit codes: 0 fine (noisy times too), 1 wrong results (or crashed, timed out, untrusted, implausible,\n"
    "or every case refused),\n"
    "2 usage or bad input (or a case that cannot be built, or no case), 5 stopped and resumable, 6 "
    "infrastructure.\n"
    "assay COMMAND --help shows the options of a command with examples.\n"
    "Tab completion for this shell: eval \"$(assay completion bash)\"";

std::string version_text() {
  const nlohmann::json b = build_facts();
  return fmt::format("assay {} (commit {}{}, {}, {})", b["version"].get<std::string>(),
                     b["commit"].is_string() ? b["commit"].get<std::string>().substr(0, 12) : "unknown",
                     b["dirty"] == true ? ", changed" : "", b["compiler"].get<std::string>(),
                     b["build_type"].get<std::string>());
}

// The library would only say that a subcommand is missing.
void require_known_command(const std::string& word, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& c : commands) names.push_back(c.app->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw InputError(
      fmt::format("there is no command {}{}; there are: {}", word, did_you_mean(word, known), join(known)));
}

// What other programs call an option of ours: one word of its name says what it means, the first that the
// command has. Close spellings need no row.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"lib", "--backend"},       {"libs", "--backend"},     {"library", "--backend"},
    {"libraries", "--backend"}, {"so", "--backend"},       {"plugin", "--backend"},
    {"dll", "--backend"},       {"regex", "--filter"},     {"grep", "--filter"},
    {"match", "--filter"},      {"output", "--out"},       {"dir", "--out"},
    {"directory", "--out"},     {"folder", "--out"},       {"gpu", "--devices"},
    {"gpus", "--devices"},      {"threads", "--jobs"},     {"parallel", "--jobs"},
    {"workers", "--jobs"},      {"processes", "--jobs"},   {"silent", "--quiet"},
    {"progress", "--quiet"},    {"plot", "--picture"},     {"png", "--picture"},
    {"image", "--picture"},     {"xml", "--junit"},        {"cases", "--limit"},
    {"override", "--set"},      {"shape", "--set"},        {"html", "--report"},
    {"continue", "--resume"},   {"deadline", "--timeout"}, {"memory", "--worker-memory"}};

std::string meant(const std::string& name, std::span<const std::string_view> known) {
  const auto has = [&](std::string_view option) {
    return std::find(known.begin(), known.end(), option) != known.end();
  };
  for (size_t at = name.find_first_not_of('-'); at < name.size();) {
    const size_t end = std::min(name.find('-', at), name.size());
    const std::string_view word = std::string_view(name).substr(at, end - at);
    for (const auto& [other, ours] : kOtherWords)
      if (word == other && has(ours)) return fmt::format(" (did you mean \"{}\"?)", ours);
    at = end + 1;
  }
  return did_you_mean(name, known);
}

// The library names every word it did not expect, values included, and only after what it misses otherwise.
void find_unknown_options(const CLI::App& command, const std::vector<std::string>& words,
                          std::vector<std::string>& wrong) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name == "--") return;
    if (!name.starts_with("--") || std::find(names.begin(), names.end(), name) != names.end()) continue;
    wrong.push_back(fmt::format("assay {} has no option {}{}", command.get_name(), name, meant(name, known)));
  }
}

// The library stops at the first value that is wrong.
void find_wrong_values(CLI::App& command, std::vector<std::string>& wrong) {
  for (CLI::Option* option : command.get_options([](CLI::Option* o) { return o->count() > 0; })) {
    try {
      option->run_callback();
    } catch (const CLI::ParseError& e) {
      wrong.push_back(e.what());
    }
  }
}

// The library says of an argument that is missing only what we call it in the program.
void find_missing(const CLI::App& command, std::vector<std::string>& wrong) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    std::string name = option->get_positional() ? option->get_name(true) : option->get_name();
    std::transform(name.begin(), name.end(), name.begin(),
                   [&](unsigned char c) { return option->get_positional() ? std::toupper(c) : c; });
    wrong.push_back(fmt::format("{} is missing: {}", name, option->get_description()));
  }
}

// All that is wrong with the words of a command which the library could not read.
[[noreturn]] void refuse_words(const CLI::ParseError& e, CLI::App& command,
                               const std::vector<std::string>& words) {
  std::vector<std::string> wrong;
  find_unknown_options(command, words, wrong);
  find_wrong_values(command, wrong);
  find_missing(command, wrong);
  if (wrong.empty()) wrong.push_back(e.what());
  const std::string help = fmt::format("; assay {} --help says more", command.get_name());
  if (wrong.size() == 1) throw InputError(wrong[0] + help);
  throw InputErrors(std::vector<InputError>(wrong.begin(), wrong.end()), 0, help);
}

int dispatch(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (argc > 2 && words[1] == "completion" && words[2] == "words") return complete(argc, argv);
  CLI::App app{"assay proves LLM attention kernels right and measures how fast they are", "assay"};
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer(kFooter);
  const std::vector<Command> commands = add_commands(app);
  if (argc > 1 && !words[1].starts_with('-')) require_known_command(words[1], commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    for (const Command& c : commands)
      if (argc > 1 && c.app->get_name() == words[1]) refuse_words(e, *c.app, words);
    throw InputError(fmt::format("{}; assay --help lists them", e.what()));
  }
  for (const Command& c : commands)
    if (c.app->parsed()) return c.run(words);
  return kExitUsage;
}

// Kernels' texts and names of files can hold anything; line breaks of ours stay.
void say(const std::string& program, const char* what, const char* message) {
  std::string text = program + ": " + what;
  for (const char* line = message;;) {
    const char* end = std::strchr(line, '\n');
    text +=
        clean_text(end ? std::string_view(line, static_cast<size_t>(end - line)) : std::string_view(line)) +
        "\n";
    if (!end) break;
    line = end + 1;
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

std::vector<Command> add_commands(CLI::App& app) {
  std::vector<Command> commands;
  for (const auto add : {add_list, add_describe, add_kernels, add_facts, add_check, add_bench, add_run,
                         add_rerun, add_compare, add_report, add_merge, add_explain, add_calibrate,
                         add_mutants, add_campaign, add_power, add_looseness, add_completion})
    commands.push_back(add(app));
  return commands;
}

void print_json(const nlohmann::json& document) {
  fmt::print("{}\n", document.dump(1, ' ', true, nlohmann::json::error_handler_t::replace));
}

std::string library_or(const std::string& given, const char* relative, const char* target,
                       const char* option) {
  const fs::path path = given.empty() ? program_folder() / relative : fs::path(given);
  if (fs::exists(path)) return path.string();
  const std::string why =
      fmt::format("{} does not exist; build the target {}, or name a library with {} PATH", path.string(),
                  target, option);
  if (!given.empty()) throw InputError(why);
  throw InfrastructureError(why);
}

std::string script_of_assay(const std::string& name) {
  const fs::path program = program_folder(), script = fs::path("scripts") / name;
  for (const fs::path& c : {fs::path(ASSAY_SOURCE_DIR) / script, program / script, program / ".." / script,
                            program / "../../share/assay" / script})
    if (fs::exists(c)) return c.string();
  throw InfrastructureError(fmt::format(
      "{} was found neither beside the sources ({}) nor near the program ({}); run the script of a "
      "checkout by hand",
      script.string(), ASSAY_SOURCE_DIR, program.string()));
}

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return 0;
}

bool use_color(Color color, int fd) {
  if (color != Color::kAuto) return color == Color::kAlways;
  const char* no = std::getenv("NO_COLOR");
  return isatty(fd) && !(no && *no);
}

int exit_code(const std::string& program, const std::function<int()>& body) {
  try {
    const int code = body();
    // What was printed may only now meet a full disk.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw InfrastructureError("stdout: what was printed could not be written (is the disk full?)");
    return code;
  } catch (const InputError& e) {
    say(program, "", e.what());
    return kExitUsage;
  } catch (const NotABackend& e) {
    say(program, "", e.what());
    return kExitUsage;
  } catch (const InfrastructureError& e) {
    say(program, "", e.what());
  } catch (const CheckError& e) {
    say(program, "this is a bug of assay, please report it with the command: ", e.what());
  } catch (const std::bad_alloc&) {
    say(program, "", "out of memory");
  } catch (const std::exception& e) {
    say(program, "", e.what());
  }
  return kExitInfrastructure;
}

int cli_main(int argc, char** argv) {
  return exit_code("assay", [&] { return dispatch(argc, argv); });
}

}  // namespace assay
