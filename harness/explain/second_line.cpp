// SPDX-License-Identifier: Apache-2.0
// See second_line.hpp.
#include "harness/explain/second_line.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "harness/explain/narrow.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr double kClearThere = 0.97;  // of it that a cause explains beside which others fall behind
// Between two lines noise differs: causes are told apart by more than on one.
constexpr double kToldApart = 0.1;
constexpr double kOwnNumbers = 0.4;  // cost of a mechanism from which on its numbers are its own
constexpr double kSameNumber = 0.02;
constexpr int32_t kTileParts = 8;       // of a tile whose size is its number on either line
constexpr double kSameThreshold = 0.2;  // of thresholds, which lie anywhere between two weights

// Without the order that was assumed, which may be named otherwise on other lengths, and without what was
// found cell by cell.
std::string plain_words(std::string text) {
  if (text.find(" in request ") != std::string::npos) text.resize(std::min(text.size(), text.find(':')));
  text.resize(std::min(text.size(), text.find(" (found: ")));
  for (std::string_view begin : {", were it cut into", ", the last ones shorter", ", tiles of"})
    if (const size_t at = text.find(begin); at != std::string::npos) {
      const size_t end = text.find(',', at + 1);
      text.erase(at, end == std::string::npos ? end : end - at);
    }
  return text;
}

// Text between numbers, and the numbers as written.
struct Words {
  std::string between;
  std::vector<std::string> numbers;
  bool threshold = false;
  explicit Words(const std::string& of) : threshold(of.starts_with("about ")) {
    bool in_number = false;
    for (const char c : plain_words(of)) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (digit && !in_number) numbers.emplace_back(), between += '#';
      in_number = digit || (in_number && c == '.');
      if (in_number)
        numbers.back() += c;
      else
        between += c;
    }
  }
  bool like(const Words& other) const { return between == other.between; }
  bool same(const Words& other, const GivenNumbers& given = {}) const {
    if (!like(other) || numbers.size() != other.numbers.size()) return false;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] == other.numbers[i] || given.contains({other.numbers[i], numbers[i]})) continue;
      if (numbers[i].find('.') == std::string::npos) return false;
      const double a = std::strtod(numbers[i].c_str(), nullptr),
                   b = std::strtod(other.numbers[i].c_str(), nullptr);
      const double near = threshold ? kSameThreshold : kSameNumber;
      if (std::fabs(a - b) > near * std::max(a, b)) return false;
    }
    return true;
  }
};

}  // namespace

void keep_asked(Hypotheses& all, const Choice& choice) {
  // In some keys alone one is the other (narrowed).
  const auto becomes = [&](std::string_view cause) {
    const bool given = choice.only.contains(cause);
    return !given &&
           (choice.only.contains(name_in_some_keys(cause)) || becomes_in_one_pass(cause, choice.only));
  };
  std::erase_if(all, [&](const Hypothesis& h) {
    return (!choice.only.empty() && !choice.only.contains(h.cause) && !becomes(h.cause)) ||
           choice.excludes(h);
  });
  if (choice.words.empty()) return;
  std::vector<std::pair<std::string_view, Words>> asked;
  for (const auto& [cause, text] : choice.words) asked.emplace_back(cause, Words(text));
  const auto any = [&](const Hypothesis& h, bool same) {
    const Words words(h.text);
    return std::any_of(asked.begin(), asked.end(), [&](const auto& a) {
      return a.first == h.cause && (same ? words.same(a.second, choice.given) : words.like(a.second));
    });
  };
  std::set<std::string_view> named;
  for (const Hypothesis& h : all)
    if (!named.contains(h.cause) && any(h, false)) named.insert(h.cause);
  std::erase_if(all, [&](const Hypothesis& h) { return named.contains(h.cause) && !any(h, true); });
}

// The form that explains the first line may be one of several, and another line the one that tells which:
// what explains that one, of the causes that are asked for, is looked for there and must explain the first in
// the same words.
struct FormOfBoth {
  Ranked ranked;  // on the first line
  double explained_there = 0;
};
static std::optional<FormOfBoth> form_of_both(const Choice& asked, const RankElsewhere& here,
                                              const RankElsewhere& elsewhere) {
  Choice open = asked;
  open.words.clear();
  open.narrow = true;
  const Ranking there = elsewhere(open);
  if (!clearly(there) || !there.list.front().also.empty()) return std::nullopt;
  const Ranking back = here(open);
  if (!clearly(back)) return std::nullopt;
  const Ranked& first = there.list.front();
  const Words words(first.text);
  for (const auto& [cause, text] : back.alike) {
    if (cause != first.cause || !Words(text).same(words)) continue;
    const auto at =
        std::find_if(back.list.begin(), back.list.end(), [&](const Ranked& r) { return r.cause == cause; });
    if (at == back.list.end()) return std::nullopt;
    FormOfBoth found{first, first.explained};
    found.ranked.misfit = at->misfit, found.ranked.explained = at->explained;
    found.ranked.same_as_first = true, found.ranked.told_apart = false, found.ranked.narrowed = true;
    return found;
  }
  return std::nullopt;
}

// Of the parts that may be meant this one.
static void say_part(Ranked& r, const std::vector<PartName>& parts, const std::string& said) {
  for (const PartName& part : parts)
    if (r.text.ends_with(", in " + part.words)) {
      r.text.replace(r.text.size() - part.words.size(), part.words.size(), said);
      return;
    }
}

// The parts of the case that it may hold in on both lines. False: there is none.
static bool keep_parts(Ranked& r, const Ranking& there) {
  if (r.parts.empty()) return true;
  const std::vector<PartName> before = r.parts;
  std::erase_if(r.parts, [&](const PartName& name) {
    return std::none_of(there.around.begin(), there.around.end(),
                        [&](const PartName& other) { return name.may_be(other); });
  });
  if (r.parts.empty()) return false;
  if (before.front().words != r.parts.front().words) say_part(r, before, r.parts.front().words);
  return true;
}

// A sentence that is true of it on one line alone is not said.
static void keep_names(Ranked& r, const Ranked& there) {
  std::erase_if(r.names, [&](std::string_view name) {
    return std::find(there.names.begin(), there.names.end(), name) == there.names.end();
  });
}

// It takes the place of all others.
static void say_instead(Ranking& ranking, const FormOfBoth& form) {
  std::erase_if(ranking.list,
                [&](const Ranked& r) { return r.cause == form.ranked.cause && r.also.empty(); });
  for (Ranked& r : ranking.list) r.told_apart = true, r.same_as_first = false;
  ranking.list.insert(ranking.list.begin(), form.ranked);
  ranking.explained_there = form.explained_there;
}

GivenNumbers tile_numbers(int32_t here, int32_t there) {
  GivenNumbers given;
  for (int32_t part = 1; part <= kTileParts && here != there; part *= 2)
    if (here % part == 0 && there % part == 0 && here > 0 && there > 0)
      given.insert({std::to_string(here / part), std::to_string(there / part)});
  return given;
}

// What is far-fetched drives out no plainer cause that another form of it explains both lines with.
static void forms_of_the_plainer(Ranking& ranking, const RankElsewhere& here,
                                 const RankElsewhere& elsewhere) {
  const auto left =
      std::find_if(ranking.list.begin(), ranking.list.end(), [](const Ranked& r) { return !r.told_apart; });
  if (left == ranking.list.end()) return;
  for (Ranked& r : ranking.list) {
    if (!r.told_apart || r.misfit > left->misfit + kSameMisfit || r.cost + kFarFetched > left->cost) continue;
    Choice one;
    one.only.insert(r.cause);
    const auto form = form_of_both(one, here, elsewhere);
    if (!form || form->ranked.in_wrong_cells || form->ranked.cost > left->cost) continue;
    r = form->ranked;
    r.same_as_first = false;
  }
}

void confirm(Ranking& ranking, const std::string& line, const RankElsewhere& here,
             const RankElsewhere& elsewhere, const GivenNumbers& tiles) {
  if (!sure(ranking) || ranking.list.front().fact) return;
  const std::vector<Ranked> best = equally_good(ranking);
  Choice choice;
  for (const Ranked& r : best) {
    choice.only.insert(r.cause);
    if (!r.also.empty()) choice.only.insert(r.also);
  }
  // Of a pair other words were not looked for here.
  if (best.front().also.empty()) choice.words = ranking.alike;
  choice.given = tiles;
  const Ranking there = elsewhere(choice);
  if (there.nothing <= kLegalMisfit) return;
  ranking.second = line;
  ranking.explained_there = there.list.empty() ? 0 : std::max(0.0, there.list.front().explained);
  if (!keep_parts(ranking.list.front(), there)) ranking.explained_there = 0;
  // Where what was said here cannot be said there, another sentence of the same cause is tried, and must
  // leave nothing: else it is another mistake that explains a part of that line.
  // The same of some keys only is no other sentence: here they may be all there are.
  const auto said_here = [&](std::string_view cause, const std::string& text) {
    return std::any_of(ranking.alike.begin(), ranking.alike.end(), [&](const auto& a) {
      return a.first == cause && (Words(a.second).like(Words(text)) || text.starts_with(a.second + ", in "));
    });
  };
  if (best.front().also.empty() && ranking.explained_there < kClearThere &&
      std::none_of(there.alike.begin(), there.alike.end(),
                   [&](const auto& a) { return said_here(a.first, a.second); }))
    ranking.explained_there = 0;
  if (ranking.explained_there < kSureThere) {
    if (!best.front().also.empty()) return;
    if (const auto form = form_of_both(choice, here, elsewhere)) say_instead(ranking, *form);
    return;
  }
  // A part of the first line that is none of the second one: a rule for both is looked for.
  if (best.front().also.empty() && there.list.front().in_wrong_cells)
    if (const auto form = form_of_both(choice, here, elsewhere); form && !form->ranked.in_wrong_cells) {
      say_instead(ranking, *form);
      return;
    }
  if (!best.front().also.empty()) {
    const Ranked& first = there.list.front();
    if (first.cause == best.front().cause && first.also == best.front().also)
      ranking.list.front().text = first.text;
    return;
  }
  const auto of = [&](const Ranked& r) {
    return std::find_if(there.list.begin(), there.list.end(),
                        [&](const Ranked& t) { return t.cause == r.cause && t.also.empty(); });
  };
  const double least = there.list.front().misfit;
  for (Ranked& r : ranking.list) {
    const bool asked = std::any_of(best.begin(), best.end(),
                                   [&](const Ranked& b) { return b.cause == r.cause && b.also == r.also; });
    if (!asked) continue;
    const auto at = of(r);
    // A rule for all cells is preferred to one for the wrong ones.
    r.told_apart = at == there.list.end() || at->misfit > least + kToldApart || !keep_parts(r, there) ||
                   (at->in_wrong_cells && !there.list.front().in_wrong_cells) ||
                   // ... and one for the whole case to one that there holds in a part of it alone.
                   (at->in_part && !r.in_part && !there.list.front().in_part);
    if (!r.told_apart) keep_names(r, *at);
    // Of words that fit here the ones that fit there.
    if (!r.told_apart && said_here(r.cause, at->text)) r.text = at->text;
  }
  forms_of_the_plainer(ranking, here, elsewhere);
  std::stable_partition(ranking.list.begin(), ranking.list.end(), [&](const Ranked& r) {
    return !r.told_apart && std::any_of(best.begin(), best.end(), [&](const Ranked& b) {
      return b.cause == r.cause && b.also == r.also;
    });
  });
  // Those that are left in the order of both lines; what predicts the same there predicts it here.
  const auto leads = [&](const Ranked& r) {
    const auto at = of(r);
    return at != there.list.end() && (at == there.list.begin() || at->same_as_first);
  };
  const bool first_leads = leads(ranking.list.front());
  for (Ranked& r : ranking.list) r.same_as_first = !r.told_apart && first_leads && leads(r);
  plainest_first(ranking);
}

// Numbers of a window, a chunk or a page, and the ones beside them, as both lines have them: not of a
// mechanism with numbers of its own. The softmax scale of any: a number that is both lines' is no accident.
static GivenNumbers given_numbers(const std::string& line, const std::string& there, bool own_numbers) {
  const Scenario a = parse_scenario(line), b = parse_scenario(there);
  GivenNumbers given;
  for (const char* digits : {"{:.3g}", "{:.4g}"})
    given.insert(
        {fmt::format(fmt::runtime(digits), scale_of(a)), fmt::format(fmt::runtime(digits), scale_of(b))});
  if (own_numbers) return given;
  const std::pair<int32_t, int32_t> all[] = {{a.window_left, b.window_left},
                                             {a.window_right, b.window_right},
                                             {a.chunk, b.chunk},
                                             {a.page_size, b.page_size}};
  for (const auto& [here, other] : all)
    for (int32_t beside = -1; beside <= 1 && here > 0; ++beside) {
      given.insert({std::to_string(here + beside), std::to_string(other + beside)});
      if (other <= 0) continue;
      // ... and of the powers of two round them, which shifts and bit masks are made of.
      const auto a_bits = static_cast<uint32_t>(here), b_bits = static_cast<uint32_t>(other);
      given.insert({std::to_string(static_cast<int64_t>(std::bit_floor(a_bits)) + beside),
                    std::to_string(static_cast<int64_t>(std::bit_floor(b_bits)) + beside)});
      given.insert({std::to_string(static_cast<int64_t>(std::bit_ceil(a_bits)) + beside),
                    std::to_string(static_cast<int64_t>(std::bit_ceil(b_bits)) + beside)});
    }
  return given;
}

void confirm_apart(Ranking& ranking, const std::string& line, const std::string& third,
                   const RankElsewhere& apart, const GivenNumbers& tiles) {
  if (!sure(ranking) || !assumes_much(ranking.list.front())) return;
  const Ranked first = ranking.list.front();
  Choice choice;
  choice.only.insert(first.cause);
  if (!first.also.empty()) choice.only.insert(first.also);
  std::vector<Words> words;
  if (first.also.empty()) {
    for (const auto& [cause, text] : ranking.alike)
      if (cause == first.cause) choice.words.insert({cause, text});
    choice.words.insert({first.cause, first.text});  // that of the second line, where it told which
    for (const auto& [cause, text] : choice.words) words.emplace_back(text);
  } else {
    choice.words = ranking.alike;
  }
  // What is put together or searched for has its own numbers, whatever the line has.
  choice.given = given_numbers(line, third, first.cost - first.price >= kOwnNumbers);
  choice.given.insert(tiles.begin(), tiles.end());
  choice.parts = first.parts;  // a part of this case is one of that one, too
  const Ranking there = apart(choice);
  if (there.nothing <= kLegalMisfit) return;
  double explained = there.list.empty() ? 0 : std::max(0.0, there.list.front().explained);
  if (explained >= kSure && first.also.empty()) {
    // What was tried there may be other forms of the cause: on that line this one may not be possible.
    const bool other_words = std::none_of(there.alike.begin(), there.alike.end(), [&](const auto& a) {
      return a.first == first.cause && std::any_of(words.begin(), words.end(), [&](const Words& w) {
               return Words(a.second).same(w, choice.given);
             });
    });
    if (other_words) explained = 0;
  }
  if (explained >= kSure) {
    // Of numbers that say the same here the one that says it there: a factor, or what it makes of a number.
    const auto said_there = [&](const std::string& text) {
      return std::any_of(there.alike.begin(), there.alike.end(), [&](const auto& a) {
        return a.first == first.cause && Words(a.second).same(Words(text), choice.given);
      });
    };
    // Of parts that are one here the one that it holds in there.
    if (const Ranked& best = there.list.front();
        !best.parts.empty() && !first.parts.empty() && best.parts.front().side == nullptr)
      say_part(ranking.list.front(), first.parts, best.parts.front().words);
    if (!first.also.empty() || first.in_part || said_there(first.text)) return;
    for (const auto& [cause, text] : ranking.alike)
      if (cause == first.cause && said_there(text)) {
        ranking.list.front().text = text;
        return;
      }
    return;
  }
  ranking.second = third;
  ranking.explained_there = explained;
}

void other_form_of_all(Ranking& ranking, const std::string& third, const RankElsewhere& here,
                       const RankElsewhere& second, const RankElsewhere& apart) {
  if (ranking.list.empty() || sure(ranking) || !ranking.list.front().also.empty()) return;
  Choice choice;
  choice.only.insert(ranking.list.front().cause);
  const auto form = form_of_both(choice, here, apart);
  if (!form) return;
  choice.words.insert({form->ranked.cause, form->ranked.text});
  const Ranking there = second(choice);
  if (there.nothing > kLegalMisfit && !clearly(there)) return;
  say_instead(ranking, *form);
  ranking.second = third;
}

void tell_apart(Ranking& ranking, const RankElsewhere& apart) {
  if (!sure(ranking) || ranking.list.front().fact || !ranking.list.front().also.empty()) return;
  const std::vector<Ranked> best = equally_good(ranking);
  if (best.size() < 2) return;
  const auto among = [&](const Ranked& r) {
    return std::any_of(best.begin(), best.end(), [&](const Ranked& b) {
      return b.cause == r.cause && b.also.empty() && r.also.empty();
    });
  };
  Choice choice;
  for (const Ranked& r : best) {
    choice.only.insert(r.cause);
    // A number that was fitted must be the same number there; those that a line gives differ.
    if (r.free > 0) choice.words.insert({r.cause, r.text});
    choice.narrow = choice.narrow || r.narrowed;
  }
  const Ranking there = apart(choice);
  if (there.nothing <= kLegalMisfit || there.list.empty() || there.list.front().explained < kClearThere)
    return;
  // One that holds in a part of that line alone, and here everywhere, does not explain it.
  const auto explains = [&](const Ranked& r, double least) {
    return std::any_of(there.list.begin(), there.list.end(), [&](const Ranked& t) {
      return t.cause == r.cause && t.also.empty() && t.explained >= least && (!t.in_part || r.in_part);
    });
  };
  if (std::none_of(best.begin(), best.end(), [&](const Ranked& r) { return explains(r, kClearThere); }))
    return;
  const auto falls_behind = [&](const Ranked& r) { return !explains(r, kClearThere - kToldApart); };
  const bool was_same = falls_behind(ranking.list.front());
  for (Ranked& r : ranking.list) {
    if (!among(r)) continue;
    if (falls_behind(r)) r.told_apart = true, r.same_as_first = false;
    for (const Ranked& t : there.list)
      if (!r.told_apart && t.cause == r.cause && t.also.empty()) keep_names(r, t);
    // Of words that fit here those that fit there.
    for (const Ranked& t : there.list)
      if (!r.told_apart && t.cause == r.cause && ranking.alike.contains({t.cause, t.text})) r.text = t.text;
  }
  std::stable_partition(ranking.list.begin(), ranking.list.end(),
                        [&](const Ranked& r) { return among(r) && !r.told_apart; });
  // A name that this line tells apart is none.
  for (Ranked& r : ranking.list)
    std::erase_if(r.names, [&](std::string_view name) {
      return std::any_of(ranking.list.begin(), ranking.list.end(),
                         [&](const Ranked& other) { return other.cause == name && other.told_apart; });
    });
  // What predicted the same as one that is gone predicts the same as each other.
  if (was_same && !ranking.list.front().same_as_first)
    for (Ranked& r : ranking.list) r.same_as_first = false;
  ranking.list.front().same_as_first = true;
  plainest_first(ranking);
}

}  // namespace assay
