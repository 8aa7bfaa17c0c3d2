// SPDX-License-Identifier: Apache-2.0
// Suites: files, includes, names and the pull-style generator over their lines. What one line means is
// suite_line.cpp.
#include "harness/scenario/suite.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "harness/base/files.hpp"
#include "harness/base/input_errors.hpp"
#include "harness/base/program.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/source_text.hpp"
#include "harness/scenario/suite_line.hpp"

#ifndef ASSAY_SCENARIO_DIR
#  error "ASSAY_SCENARIO_DIR (the folder of the shipped suites) comes from CMakeLists.txt of this folder"
#endif

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = 256 << 20;  // a line per case: millions of cases

std::string read_file(const std::string& path, const SourcePlace& place) {
  std::string text = read_text_file(place, path, kMaxBytes, "a suite file");
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // a mark in front that some editors write
  // A message would end at it.
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    const size_t line = zero == 0 ? std::string::npos : text.rfind('\n', zero - 1);
    const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(zero), '\n');
    throw InputError({path, static_cast<int>(lines) + 1,
                      static_cast<int>(line == std::string::npos ? zero : zero - line - 1) + 1},
                     "zero byte; expected UTF-8 text");
  }
  return text;
}

// One file however it is spelled.
std::string identity(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? path : canonical.string();
}

struct OpenFile {
  std::string text;
  SourcePlace next;     // of the next line
  size_t position = 0;  // of the next line in `text`
  std::string id;       // identity(), or empty for typed text
  NamedTexts names;     // of the file itself and of those it includes
};

// First word of a line and what follows it.
std::pair<Slice, Slice> first_word(Slice line) {
  line = trim(line);
  size_t end = 0;
  while (end < line.text.size() && !is_space(line.text[end])) ++end;
  return {line.sub(0, end), trim(line.sub(end))};
}

}  // namespace

std::vector<std::string> shipped_suites() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(scenario_folder(), error))
    if (entry.path().extension() == ".suite") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Suite::Impl {
  std::vector<OpenFile> open;               // the innermost include last
  std::map<std::string, NamedTexts> known;  // files read to their end, with their names; each is read once
  std::unique_ptr<LineCases> line;
  SuiteCounts counts;
  std::set<std::string, std::less<>> broken;  // names whose definition is wrong
  bool names_missing = false;                 // those of a file that could not be read

  void push(std::string text, SourcePlace place, std::string id) {
    open.push_back({std::move(text), std::move(place), 0, std::move(id), {}});
  }

  // Ends the innermost file and hands its names to the one that included it.
  void pop() {
    const OpenFile done = std::move(open.back());
    open.pop_back();
    if (!open.empty()) import(done.names);
    if (!done.id.empty()) known.emplace(done.id, done.names);
  }

  // Names of the file itself win, then those of its last include.
  void import(const NamedTexts& names) {
    NamedTexts& mine = open.back().names;
    for (const auto& [name, text] : names) {
      const auto found = mine.find(name);
      if (found != mine.end() && found->second.own) continue;
      NamedText copy = text;
      copy.own = false;
      mine.insert_or_assign(name, std::move(copy));
    }
  }

  void include(Slice path, const SourcePlace& place) {
    if (path.text.empty()) throw InputError(place, "include needs a file: include other.suite");
    const fs::path folder = fs::path(open.back().next.file).parent_path();
    const std::string file = (folder / std::string(path.text)).lexically_normal().string();
    const std::string id = identity(file);
    for (const OpenFile& outer : open) {
      if (outer.id != id) continue;
      std::string chain;
      for (const OpenFile& o : open) chain += o.next.file + " -> ";
      throw InputError(place, fmt::format("include loop: {}{}", chain, file));
    }
    if (const auto again = known.find(id); again != known.end()) return import(again->second);
    push(read_file(file, place), {file, 1, 1}, id);
  }

  void name_text(Slice rest, std::string_view raw, const SourcePlace& line_place) {
    auto at = [&](size_t offset) {
      SourcePlace p = line_place;
      p.column += static_cast<int>(offset);
      return p;
    };
    const char* usage = "expected let NAME = TEXT, the name of letters, digits and _";
    const size_t equals = rest.text.find('=');
    if (equals == std::string_view::npos) throw InputError(at(rest.offset), usage);
    const Slice name = trim(rest.sub(0, equals));
    if (name.text.empty() || !std::all_of(name.text.begin(), name.text.end(), is_name_character))
      throw InputError(at(name.offset), brief(fmt::format("\"{}\" is not a name; {}", name.text, usage)));
    const Slice text = trim(rest.sub(equals + 1));
    if (text.text.empty()) throw InputError(at(text.offset), usage);
    NamedTexts& names = open.back().names;
    if (const auto found = names.find(name.text); found != names.end() && found->second.own) {
      const SourcePlace& first = found->second.place;
      throw InputError(at(name.offset), fmt::format("\"{}\" is already defined at {}:{}:{}", name.text,
                                                    first.file, first.line, first.column));
    }
    names.insert_or_assign(
        std::string(name.text),
        NamedText{expand_names(raw.substr(text.offset, text.text.size()), at(text.offset), names),
                  at(name.offset)});
  }

  // Reads one line of the innermost file; false when nothing is left.
  bool read_line() {
    while (!open.empty() && open.back().position >= open.back().text.size()) pop();
    if (open.empty()) return false;
    OpenFile& file = open.back();
    const size_t end = std::min(file.text.find('\n', file.position), file.text.size());
    const std::string raw(
        without_comment(std::string_view(file.text).substr(file.position, end - file.position)));
    const SourcePlace place = file.next;
    file.position = end + 1;
    ++file.next.line;
    file.next.column = 1;
    const auto [word, rest] = first_word({raw, 0});
    if (word.text.empty()) return true;
    SourcePlace word_place = place;
    word_place.column += static_cast<int>(word.offset);
    if (word.text == "include") {
      try {
        include(rest, word_place);  // invalidates `file`
      } catch (const InputError&) {
        names_missing = true;
        throw;
      }
    } else if (word.text == "let") {
      try {
        name_text(rest, raw, place);
      } catch (const InputError&) {
        const auto end = std::find_if_not(rest.text.begin(), rest.text.end(), is_name_character);
        broken.emplace(rest.text.begin(), end);
        throw;
      }
    } else {
      SourceText source = expand_names(raw, place, file.names);
      if (trim(source.slice()).text.empty()) return true;
      ++counts.lines;
      line = std::make_unique<LineCases>(std::move(source));
    }
    return true;
  }

  std::optional<SuiteCase> next() {
    while (true) {
      if (line) {
        if (std::optional<Scenario> scenario = line->next(counts))
          return SuiteCase{std::move(*scenario), line->place()};
        line.reset();
      }
      if (!read_line()) return std::nullopt;
    }
  }

  bool follows(const InputError& error) const {
    const auto* unknown = dynamic_cast<const UnknownName*>(&error);
    return unknown != nullptr && (names_missing || broken.contains(unknown->name()));
  }

  // Reads on to the end for mistakes, of each line at most `kLooked` cases, and throws them. A text that is
  // used by many lines is wrong at one place.
  void look_through(const InputError* first) {
    constexpr int64_t kLooked = 4096;
    Mistakes found;
    std::set<std::tuple<std::string, int, int>> places;
    const auto add = [&](const InputError& error) {
      const SourcePlace& p = error.place();
      if (!follows(error) && places.emplace(p.file, p.line, p.column).second) found.add(error);
    };
    const auto add_all = [&](const InputError& error) {
      const auto* several = dynamic_cast<const InputErrors*>(&error);
      if (several == nullptr) return add(error);
      for (const InputError& one : several->all()) add(one);
    };
    if (first != nullptr) add_all(*first);
    while (true) {
      line.reset();
      try {
        if (!read_line()) break;
        for (int64_t n = 0; line && n < kLooked && line->next(counts); ++n) {
        }
      } catch (const InputError& error) {
        add_all(error);
      }
    }
    found.raise();
  }
};

std::string scenario_folder() {
  std::error_code error;
  // PREFIX/lib/assay/assay and PREFIX/share/assay/scenarios (lib may have an architecture's folder in it), or
  // a folder that holds the program and the suites.
  for (fs::path up = program_folder(); up.has_relative_path(); up = up.parent_path())
    for (const char* below : {"share/assay/scenarios", "scenarios"})
      if (fs::is_regular_file(up / below / "smoke.suite", error)) return (up / below).string();
  return ASSAY_SCENARIO_DIR;
}

Suite::Suite(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Suite::Suite(Suite&&) noexcept = default;
Suite& Suite::operator=(Suite&&) noexcept = default;
Suite::~Suite() = default;

Suite Suite::from_text(std::string text, SourcePlace place) {
  if (place.line == 0) place.line = 1;
  if (place.column == 0) place.column = 1;
  auto impl = std::make_unique<Impl>();
  std::error_code error;
  const std::string id = fs::is_regular_file(place.file, error) ? identity(place.file) : "";
  impl->push(std::move(text), std::move(place), id);
  return Suite(std::move(impl));
}

Suite Suite::open(const std::string& name_or_line, int argument) {
  std::error_code error;
  const SourcePlace typed{"command line", argument, 1};
  const std::string& name = name_or_line;
  if (name.empty())
    throw InputError(typed, "a suite or a scenario line is expected, e.g. smoke or \"paged batch=4q1s1k\"");
  const bool has_words = name.find_first_of(" \t\n=") != std::string::npos;
  auto open_file = [&](const std::string& path) { return from_text(read_file(path, typed), {path, 1, 1}); };
  if (fs::is_regular_file(name, error)) return open_file(name);
  const std::string_view op = std::string_view(name).substr(0, name.find_first_of(", "));
  if (has_words || value_of(op_names(), op)) return from_text(name, typed);
  if (name.ends_with(".suite") || name.find('/') != std::string::npos) return open_file(name);
  const std::string shipped_path = fmt::format("{}/{}.suite", scenario_folder(), name);
  const std::string here = fmt::format("scenarios/{}.suite", name);
  // The same file by its short path, so that rows recorded from the repository name no machine's folders.
  if (fs::equivalent(shipped_path, here, error)) return open_file(here);
  for (const std::string& path : {shipped_path, here, fmt::format("{}.suite", name)})
    if (fs::is_regular_file(path, error)) return open_file(path);
  const std::vector<std::string> shipped = shipped_suites();
  const std::vector<std::string_view> known(shipped.begin(), shipped.end());
  throw InputError(
      typed,
      brief(fmt::format("\"{}\" is neither a suite nor a scenario line{}; suites: {}; a line starts with {}",
                        name, did_you_mean(name, known), known.empty() ? "none found" : join(known),
                        accepted(op_names()))));
}

std::optional<SuiteCase> Suite::next() {
  try {
    return impl_->next();
  } catch (const InputError& first) {
    impl_->look_through(&first);
    throw;  // never: the first mistake follows from none
  }
}

void Suite::look_through() { impl_->look_through(nullptr); }

const SuiteCounts& Suite::counts() const { return impl_->counts; }

}  // namespace assay
