// SPDX-License-Identifier: Apache-2.0
// What must be seen at small sizes, with the kernels of libassay_sized.so: nowhere less than any other
// project's rule; and the record, which comes back as it was written.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "harness/base/error.hpp"
#include "harness/input/exact_recipe.hpp"
#include "harness/input/value_source.hpp"
#include "harness/power/curves.hpp"
#include "harness/power/power_case.hpp"
#include "harness/power/search.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/suite.hpp"

namespace assay::power {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const Catalogue& sized() {
  static const Catalogue catalogue = load_catalogue(ASSAY_BINARY_DIR "/faulty/libassay_sized.so");
  return catalogue;
}

const CatalogueEntry& fault(const std::string& name) {
  for (const CatalogueEntry& e : sized().faults)
    if (e.name == name) return e;
  throw std::runtime_error("no fault " + name);
}

const CatalogueEntry& right_kernel() { return sized().variants.front(); }

// The rows that came last, in order.
std::vector<CurveRow> measured(const CurveOptions& o, const std::vector<CurveRow>& done = {}) {
  std::map<DrawKey, CurveRow> last;
  EXPECT_TRUE(measure(
      sized(), o, done, nullptr, [](const CurveProgress&) {},
      [&](const std::vector<CurveRow>& rows) {
        for (const CurveRow& r : rows) last[key_of(r)] = r;
      }));
  std::vector<CurveRow> all;
  for (const auto& [key, row] : last) all.push_back(row);
  sort_curves(all, sized());
  return all;
}

struct Pair {
  PowerCase here, again;
  explicit Pair(const std::string& format, int64_t keys, uint64_t seed = 3)
      : here(sized(), right_kernel(), line_of(format_named(format), keys, seed, Asks::kRandom)),
        again(sized(), right_kernel(), line_of(format_named(format), keys, seed + 1, Asks::kRandom)) {}
  bool ours(const CatalogueEntry& e) {
    const Marks marks = here.look(e);
    return std::find(marks.begin(), marks.begin() + kAggregates, Mark::kRejects) !=
               marks.begin() + kAggregates ||
           here.ask_statistics(e, again) == Mark::kRejects;
  }
};

TEST(Power, TheKernelWithoutAFaultIsRejectedByNothingOfOurs) {
  for (const Format& f : formats()) {
    Pair pair(f.name, 300);
    EXPECT_FALSE(pair.ours(right_kernel())) << f.name;
    IncidenceCase known(sized(), right_kernel(), line_of(f, 300, 3, Asks::kEveryKey));
    EXPECT_FALSE(known.rejects(right_kernel())) << f.name;
  }
}

TEST(Power, ABiasOf2ToThe13thIsSeen) {
  Pair pair("bf16", 128);
  EXPECT_TRUE(pair.ours(fault("output_bias_2^-13")));
  EXPECT_FALSE(pair.ours(fault("output_bias_2^-18")));
}

// Far below half a step of the output, and far below what truncations and rounded scales could lean by if all
// their signs were one: seen over many elements, with the units followed on the data.
TEST(Power, ABiasOf2ToThe12thIsSeenInManyElementsOf4kKeys) {
  const auto line = [](int seed) {
    return fmt::format("paged h=8/1 d=64 page=64 batch=1q16s4k seed={}", seed);
  };
  PowerCase here(sized(), right_kernel(), line(3)), again(sized(), right_kernel(), line(4));
  const CatalogueEntry& biased = fault("output_bias_2^-12");
  const Marks elements = here.look(biased);
  EXPECT_EQ(elements[kTierR], Mark::kAccepts);  // in no single one
  EXPECT_EQ(here.ask_statistics(biased, again), Mark::kRejects);
  EXPECT_EQ(here.ask_statistics(right_kernel(), again), Mark::kAccepts);
}

// A batch whose values lie along its results: what correlated errors make of sums is little once they are
// rounded.
TEST(Power, ABiasOf2ToThe13thIsSeenInAServingBatchOf4kKeys) {
  Pair pair("serving", 4096, 2);
  const CatalogueEntry& biased = fault("output_bias_2^-13");
  EXPECT_EQ(pair.here.ask_statistics(biased, pair.again), Mark::kRejects);
  EXPECT_EQ(pair.here.ask_statistics(right_kernel(), pair.again), Mark::kAccepts);
}

TEST(Power, AnFp16AccumulatorIsSeenAt4kKeys) {
  Pair pair("bf16", 4096);
  const Marks accumulator = pair.here.look(fault("accumulator_2^-11"));
  EXPECT_EQ(accumulator[kTierR], Mark::kRejects);
  EXPECT_EQ(accumulator[kTierD], Mark::kAccepts);  // which of the tiers it takes
  EXPECT_FALSE(pair.ours(fault("accumulator_2^-20")));
}

// Of a batch of one request and a cache of one head.
int64_t keys_never_asked(const Problem& p) {
  const std::vector<int> roots = sharing_roots(p);
  const ExactRecipe recipe(p, roots);
  std::set<int32_t> asked;
  for (int32_t row = 0; row < p.requests.front().q_len; ++row)
    for (int32_t head = 0; head < p.heads_q; ++head)
      for (const int32_t key : recipe.matching_keys(0, row, head)) asked.insert(key);
  return p.max_kv_len() - static_cast<int64_t>(asked.size());
}

// A typical key weighs too little there for any random input; the shipped lines ask for each.
TEST(Power, ADroppedKeyOf64kIsFoundByTheSuites) {
  std::map<std::pair<bool, int32_t>, int> met;  // of latent rows, format of K
  for (const char* name : {"structured", "decode"}) {
    Suite suite = Suite::open(name);
    while (const auto c = suite.next()) {
      if (c->scenario.recipe != InputRecipe::kIncidence) continue;
      const Problem p = make_problem(c->scenario);
      if (p.max_kv_len() <= 50000) continue;
      ++met[{p.layout == ASSAY_LAYOUT_MLA, p.k_format}];
      const std::string line = print(c->scenario);
      EXPECT_EQ(keys_never_asked(p), 0) << line;
      IncidenceCase known(sized(), right_kernel(), line);
      EXPECT_TRUE(known.rejects(fault("key_weight_2^0"))) << line;
      EXPECT_FALSE(known.rejects(right_kernel())) << line;
    }
  }
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16, ASSAY_FP8_E4M3, ASSAY_INT8})
    EXPECT_GT((met[{false, format}]), 0) << format;
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP8_E4M3}) EXPECT_GT((met[{true, format}]), 0) << format;
}

TEST(Power, NoOtherRuleSeesLessAtSmallSizes) {
  CurveOptions o;
  o.formats = {"bf16", "fp16", "fp8"};
  o.keys = {128, 700};
  o.draws = 1;
  const std::vector<CurveRow> rows = measured(o);
  EXPECT_EQ(false_alarms(rows), 0);
  const std::vector<Power> powers = powers_of(rows);
  EXPECT_EQ(powers.size(), 3u * 2 * 8);
  for (const Behind& b : behind_peers(powers))
    ADD_FAILURE() << detector_names()[b.peer] << ": " << b.power->format << " " << b.power->fault << " "
                  << b.power->keys;
  // Curves that say nothing would be ahead of everybody too.
  for (const Power& p : powers)
    EXPECT_EQ(p.by[kOurs].half.kind, Threshold::kSize) << p.format << " " << p.fault;
}

// ---- the record

CurveRow made(int draw, Threshold ours, Threshold peer, Threshold known = {}) {
  CurveRow r;
  r.format = "bf16", r.fault = "key_weight", r.keys = 128, r.draw = draw;
  r.seen[kOurs] = ours, r.seen[kFirstPeer] = peer, r.seen[kIncidence] = known;
  return r;
}
constexpr Threshold kNever{Threshold::kNever, 0};
Threshold at(double size) { return {Threshold::kSize, size}; }

TEST(Record, ComesBackAsItWasWritten) {
  const std::string path = ::testing::TempDir() + "/power_record.csv";
  const CurveRow row = made(2, at(0.125), kNever, {Threshold::kRejectsRight, 0});
  std::ofstream(path) << "# a comment\n" << csv_header() << "\n" << csv_line(row) << "\n";
  const std::vector<CurveRow> read = read_curves(path);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].format, row.format);
  EXPECT_EQ(read[0].fault, row.fault);
  EXPECT_EQ(read[0].keys, row.keys);
  EXPECT_EQ(read[0].draw, row.draw);
  EXPECT_EQ(read[0].seen, row.seen);
  std::remove(path.c_str());
}

TEST(Record, NamesTheLineThatIsWrong) {
  const std::string path = ::testing::TempDir() + "/power_bad.csv";
  const auto message = [&](const std::string& text) -> std::string {
    std::ofstream(path) << text;
    try {
      read_curves(path);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message("a,b\n1,2\n"),
              HasSubstr("power_bad.csv:1: expected the header format,keys,fault,draw"));
  const std::string line = csv_line(made(0, at(1), at(1)));
  EXPECT_EQ(message(csv_header() + "\n" + line + "\n"), "");
  EXPECT_THAT(message(csv_header() + "\n" + line + "\n" + line + ",1\n"),
              HasSubstr("power_bad.csv:3: expected"));
  EXPECT_THAT(message(csv_header() + "\nbf16,many" + line.substr(8) + "\n"), HasSubstr(":2: expected"));
  std::remove(path.c_str());
}

TEST(Record, HalfAnd95PercentOfTheDraws) {
  std::vector<CurveRow> rows;
  for (int i = 0; i < 20; ++i)
    rows.push_back(made(i, at(i < 19 ? 1 << i / 5 : 4096), i < 12 ? at(2) : kNever));
  const std::vector<Power> powers = powers_of(rows);
  ASSERT_EQ(powers.size(), 1u);
  EXPECT_EQ(powers[0].draws, 20);
  EXPECT_EQ(powers[0].by[kOurs].half, at(2));
  EXPECT_EQ(powers[0].by[kOurs].most, at(8));
  EXPECT_EQ(powers[0].by[kFirstPeer].half, at(2));
  EXPECT_EQ(powers[0].by[kFirstPeer].most, kNever);
  EXPECT_EQ(powers[0].by[kTierD].half.kind, Threshold::kNotAsked);
}

TEST(Record, WhatNobodyAsksIsNotASearchThatWasNotReached) {
  const Threshold later{Threshold::kNotReached, 0};
  const auto peer = [](const std::vector<CurveRow>& rows) { return powers_of(rows)[0].by[kFirstPeer].half; };
  EXPECT_EQ(peer({made(0, at(2), {}), made(1, later, later)}).kind, Threshold::kNotAsked);
  EXPECT_EQ(peer({made(0, at(2), at(1)), made(1, later, later)}), at(1));
  EXPECT_EQ(peer({made(0, later, later), made(1, later, later)}).kind, Threshold::kNotReached);
}

TEST(Record, BehindIsWhereAPeerSeesSmallerFaultsThanAllOfOurs) {
  const auto behind = [](std::vector<CurveRow> rows) {
    const std::vector<Power> powers = powers_of(rows);
    std::vector<bool> half;
    for (const Behind& b : behind_peers(powers)) half.push_back(b.half);
    return half;
  };
  EXPECT_EQ(behind({made(0, at(2), at(2))}), std::vector<bool>{});
  EXPECT_EQ(behind({made(0, at(2), at(1))}), std::vector<bool>{true});
  EXPECT_EQ(behind({made(0, kNever, at(1))}), std::vector<bool>{true});
  EXPECT_EQ(behind({made(0, at(2), at(1), at(0.5))}), std::vector<bool>{});  // incidence inputs see it
  EXPECT_EQ(behind({made(0, at(2), {Threshold::kRejectsRight, 0})}), std::vector<bool>{});
  EXPECT_EQ(behind({made(0, at(1), at(1)), made(1, at(4), at(2))}), std::vector<bool>{false});
}

TEST(Record, CountsDrawsWithFalseAlarms) {
  CurveRow wrong = made(1, {Threshold::kRejectsRight, 0}, at(1));
  EXPECT_EQ(false_alarms({made(0, at(1), {Threshold::kRejectsRight, 0}), wrong, wrong}), 1);
}

TEST(Measure, GoesOnBehindWhatIsDone) {
  CurveOptions o;
  o.formats = {"bf16"}, o.keys = {64}, o.faults = {"mask_shift"}, o.draws = 3;
  const std::vector<CurveRow> whole = measured(o);
  ASSERT_EQ(whole.size(), 3u);
  CurveRow other = whole[2];
  other.fault = "softmax_scale";
  const std::vector<CurveRow> rest = measured(o, {whole[0], whole[1], other});
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(csv_line(rest[0]), csv_line(whole[2]));
}

CurveOptions one_draw() {
  CurveOptions o;
  o.formats = {"bf16"}, o.keys = {64}, o.faults = {"key_weight"}, o.draws = 1;
  return o;
}

std::string text_of(const std::vector<CurveRow>& rows) {
  std::string text;
  for (const CurveRow& r : rows) text += csv_line(r) + "\n";
  return text;
}

TEST(Measure, TheRowsAreTheSameWhateverTheNumberOfProcesses) {
  CurveOptions o;
  o.formats = {"fp8", "bf16"}, o.keys = {64, 128}, o.faults = {"output_bias", "key_weight"}, o.draws = 2;
  const std::string alone = text_of(measured(o));
  EXPECT_EQ(std::count(alone.begin(), alone.end(), '\n'), 2 * 2 * 2 * 2);
  EXPECT_EQ(alone.find('?'), std::string::npos);
  o.jobs = 3;
  EXPECT_EQ(text_of(measured(o)), alone);
  o.memory = 1;  // one after the other then, whatever it takes
  EXPECT_EQ(text_of(measured(o)), alone);
  o.jobs = 1, o.threads = 4;  // several sizes at a time
  EXPECT_EQ(text_of(measured(o)), alone);
}

bool not_reached(const CurveRow& r, size_t from, size_t end) {
  return std::all_of(r.seen.begin() + static_cast<std::ptrdiff_t>(from),
                     r.seen.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Threshold& t) { return t.kind == Threshold::kNotReached; });
}

TEST(Measure, WhatThereIsNoTimeForIsARowThatSaysSo) {
  CurveOptions o = one_draw();
  o.faults = {}, o.draws = 3, o.seconds = 1e-9;
  const std::vector<CurveRow> rows = measured(o);
  ASSERT_EQ(rows.size(), 8u);  // one for every point, not for every draw
  for (const CurveRow& r : rows) EXPECT_TRUE(not_reached(r, 0, kDetectors)) << r.fault;
  const std::vector<Power> powers = powers_of(rows);
  EXPECT_EQ(holes_of(powers).random, 8);
  EXPECT_EQ(holes_of(powers).known, 8);
  EXPECT_EQ(powers[0].draws, 0);
  EXPECT_TRUE(behind_peers(powers).empty());
  // They come when there is time.
  o = one_draw();
  const std::vector<CurveRow> later = measured(o, rows);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(csv_line(later[0]), csv_line(measured(o).at(0)));
}

TEST(Measure, HalfOfARowThatWasNotReachedIsMeasuredLater) {
  const CurveOptions o = one_draw();
  const std::vector<CurveRow> whole = measured(o);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_TRUE(measured(o, whole).empty());
  CurveRow marked = whole[0];
  marked.seen[kIncidence] = {Threshold::kNotReached, 0};
  marked.seen[kOurs] = at(3);  // no size of a draw: the rest is not measured again
  EXPECT_EQ(holes_of(powers_of({marked})).known, 1);
  EXPECT_EQ(holes_of(powers_of({marked})).random, 0);
  const std::vector<CurveRow> rest = measured(o, {marked});
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].seen[kIncidence], whole[0].seen[kIncidence]);
  EXPECT_EQ(rest[0].seen[kOurs], at(3));
}

// Points of which nothing is left out: every format at every length, and what costs most in parts of its own.
TEST(Measure, EveryFormatHasAMillionKeys) {
  const std::vector<Family> families = families_of(sized(), {});
  std::vector<const Family*> all;
  for (const Family& f : families) all.push_back(&f);
  for (const Format& f : formats())
    for (const bool known : {false, true}) {
      const std::vector<Part> parts = parts_of(f, 1 << 20, 0, 1, known, all);
      EXPECT_EQ(parts.size(), families.size()) << f.name;
      for (const Part& part : parts) {
        EXPECT_GT(part.cost(), 1e10) << part.line();
        EXPECT_LT(part.bytes(), 40e9) << part.line();
        EXPECT_THAT(part.line(), HasSubstr("s1048576"));
      }
    }
  EXPECT_EQ(parts_of(formats()[0], 128, 0, 1, false, all).size(), 1u);
}

// What lies in one key is looked for in each (but where rows see no power of two, for 3 %); what lies in all
// rows, in half of them here.
TEST(Measure, KnownAnswersAskForEveryKeyWhereAFaultLiesInKeys) {
  constexpr int64_t kKeys = 1 << 18;
  const std::vector<Family> families = families_of(sized(), {"key_weight", "output_bias"});
  for (const Family& f : families) {
    const std::vector<Part> parts = parts_of(format_named("bf16"), kKeys, 0, 1, true, {&f});
    ASSERT_EQ(parts.size(), 1u);
    const Problem p = make_problem(parse_scenario(parts[0].line()));
    const double never = static_cast<double>(keys_never_asked(p)) / kKeys;
    EXPECT_EQ(p.rows(), f.name == "key_weight" ? 16 : 8);
    if (f.name == "key_weight")
      EXPECT_LT(never, 0.03);
    else
      EXPECT_GT(never, 0.4);
  }
}

// Where several KV heads are read, each by heads of its own.
TEST(Measure, KnownAnswersOfServingSeeADroppedKey) {
  IncidenceCase known(sized(), right_kernel(), line_of(format_named("serving"), 1 << 15, 1, Asks::kEveryKey));
  EXPECT_EQ(known.problem().rows(), 4);
  EXPECT_TRUE(known.rejects(fault("key_weight_2^0")));
}

Threshold smallest(const std::vector<const CatalogueEntry*>& sizes,
                   const std::function<bool(size_t)>& rejects, std::optional<double> guess = {}) {
  Halving halving(sizes, guess);
  while (const std::optional<size_t> at = halving.asks()) halving.answer(rejects(*at));
  return halving.found();
}

// Whatever was guessed: the same answer; where it holds, from it and the next smaller size alone.
TEST(Measure, AGuessSavesRunsAndChangesNoAnswer) {
  const std::vector<Family> families = families_of(sized(), {"key_weight"});
  const std::vector<const CatalogueEntry*>& sizes = families.at(0).sizes;
  ASSERT_GT(sizes.size(), 20u);
  const double never = std::numeric_limits<double>::infinity();
  std::vector<double> answers{never};
  for (const CatalogueEntry* e : sizes) answers.push_back(e->size);
  for (const double answer : answers) {
    int asked = 0;
    const auto rejects = [&](size_t i) { return ++asked, answer != never && sizes[i]->size >= answer; };
    const Threshold halved = smallest(sizes, rejects);
    EXPECT_EQ(halved.kind == Threshold::kSize ? halved.size : never, answer);
    for (const double guess : answers) {
      asked = 0;
      EXPECT_EQ(smallest(sizes, rejects, guess), halved) << answer << " guessed as " << guess;
      EXPECT_LE(asked, guess == answer ? 2 : 10) << answer << " guessed as " << guess;
    }
  }
  // What may be asked next is among what is said to be asked next.
  for (const double answer : answers) {
    Halving halving(sizes, sizes[10]->size);
    for (std::vector<size_t> ahead; halving.asks(); halving.answer(sizes[*halving.asks()]->size >= answer)) {
      if (!ahead.empty()) {
        EXPECT_THAT(ahead, Contains(*halving.asks())) << answer;
      }
      ahead = halving.may_ask(3);
      EXPECT_EQ(ahead.at(0), *halving.asks());
    }
    EXPECT_EQ(halving.found().kind == Threshold::kSize ? halving.found().size : never, answer);
    EXPECT_TRUE(halving.may_ask(3).empty());
  }
  // A record that is gone on with guesses by what it has of fewer keys.
  CurveOptions o = one_draw();
  const std::vector<CurveRow> before = measured(o);
  o.keys = {128};
  const std::string alone = text_of(measured(o));
  for (Threshold wrong : {Threshold{}, at(16), at(std::ldexp(1.0, -12)), Threshold{Threshold::kNever, 0}}) {
    CurveRow row = before.at(0);
    if (wrong.kind != Threshold::kNotAsked) row.seen.fill(wrong);
    EXPECT_EQ(text_of(measured(o, {row})), alone);
  }
}

TEST(Measure, UnknownNamesAreRefused) {
  CurveOptions o;
  o.faults = {"key_wait"};
  EXPECT_THROW(measured(o), InputError);
  o.faults = {}, o.formats = {"fp4"};
  EXPECT_THROW(measured(o), InputError);
}

}  // namespace
}  // namespace assay::power
