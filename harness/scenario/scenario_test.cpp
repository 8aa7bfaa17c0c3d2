// SPDX-License-Identifier: Apache-2.0
// One scenario line: canonical text, round trips over thousands of random cases, and every kind of
// mistake with the exact column and message a user gets.
#include "harness/scenario/scenario.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "harness/scenario/fields.hpp"
#include "harness/scenario/random_scenario.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string canonical(std::string_view line) { return print(parse_scenario(line)); }

TEST(Scenario, CanonicalText) {
  const std::pair<const char*, const char*> cases[] = {
      // Defaults disappear, order and spelling become canonical.
      {"paged h=32/8 d=128 kv=fp8_e4m3:head page=16 layout=nhd mask=causal window=1023 "
       "batch=64q1s4k_2q512s2k seed=7",
       "paged kv=fp8_e4m3:head window=1023 batch=64q1s4k_2q512s2k seed=7"},
      {"paged seed=7 batch=2q3 h=8", "paged h=8 batch=2q3 seed=7"},
      {"prefill h=16/16 d=192/128 batch=1q5s5", "prefill h=16 d=192/128 batch=1q5"},
      {"prefill  h=32/8\tbatch=q2048", "prefill batch=1q2k"},
      {"paged kv=int8:token_head/int8:tensor batch=1q1", "paged kv=int8:token_head/int8 batch=1q1"},
      {"paged kv=int8:token_head/bf16 batch=1q1", "paged kv=int8:token_head/bf16 batch=1q1"},
      {"paged kv=fp8_e4m3/fp8_e4m3 batch=1q1", "paged kv=fp8_e4m3 batch=1q1"},
      // kv= and out= follow q; a written value that is the default disappears, another stays.
      {"prefill q=fp16 kv=fp16 out=fp16 batch=1q1", "prefill q=fp16 batch=1q1"},
      {"prefill q=fp16 kv=bf16 out=bf16 batch=1q1", "prefill q=fp16 kv=bf16 out=bf16 batch=1q1"},
      {"prefill q=fp8_e4m3:head kv=bf16 out=bf16 batch=1q1", "prefill q=fp8_e4m3:head batch=1q1"},
      {"paged window=-1/5 batch=1q1", "paged window=-1/5 batch=1q1"},
      {"paged window=2048/-1 chunk=8192 batch=1q1", "paged window=2k chunk=8k batch=1q1"},
      {"paged strides=table+q batch=1q1", "paged strides=q+table batch=1q1"},
      {"paged cap=50.0 scale=1.25e-1 batch=1q1", "paged cap=50 scale=0.125 batch=1q1"},
      {"paged cap=0 chunk=0 window=-1 scale=auto batch=1q1", "paged batch=1q1"},
      {"paged cap=-0.0 batch=1q1", "paged batch=1q1"},
      {"paged page=1k batch=1q1", "paged page=1024 batch=1q1"},
      {"paged batch=2q1 seed=1 relate=strides+pages+alone",
       "paged batch=2q1 relate=pages+alone+strides seed=1"},
      {"paged relate=none blocks=auto batch=1q1", "paged batch=1q1"},
      {"paged blocks=65536 batch=1q1 input=incidence", "paged blocks=64k batch=1q1 input=incidence"},
      {"paged seed=18446744073709551615 batch=1q1", "paged batch=1q1 seed=18446744073709551615"},
      {"paged batch=trace(a.csv, step=2k, tokens=8192, seqs=9, rate=0.5)",
       "paged batch=trace(a.csv,step=2048,seqs=9,rate=0.5)"},
      {"paged batch=uniform(s=1k:8k, n=4)", "paged batch=uniform(n=4,q=1,s=1k:8k)"},
      {"paged batch=zipf(n=4,q=1:3,s=7,a=1.2)", "paged batch=zipf(n=4,q=1:3,s=7)"},
  };
  for (const auto& [line, expected] : cases) {
    EXPECT_EQ(canonical(line), expected) << line;
    EXPECT_EQ(canonical(expected), expected);
  }
}

TEST(Scenario, ValuesOfALine) {
  const Scenario s = parse_scenario(
      "paged h=12/4 d=96/64 q=fp16 kv=int8:channel/fp16 out=fp32 page=32 layout=hnd storage=split "
      "table=token index=swa slots=drawn "
      "strides=q+kv+out+table+last mask=causal window=5/2 chunk=64 cap=30 alibi=sqrt sinks=on scale=0.5 "
      "batch=3q4s50p20 "
      "input=boundary blocks=99 relate=order+chunked seed=9");
  EXPECT_EQ(s.op, ASSAY_OP_PAGED);
  EXPECT_EQ(s.heads_q, 12);
  EXPECT_EQ(s.heads_kv, 4);
  EXPECT_EQ(s.head_dim_qk, 96);
  EXPECT_EQ(s.head_dim_v, 64);
  EXPECT_EQ(s.q, (Quantization{ASSAY_FP16, ASSAY_SCALE_NONE}));
  EXPECT_EQ(s.k, (Quantization{ASSAY_INT8, ASSAY_SCALE_CHANNEL}));
  EXPECT_EQ(s.v, (Quantization{ASSAY_FP16, ASSAY_SCALE_NONE}));
  EXPECT_EQ(s.o_format, ASSAY_FP32);
  EXPECT_EQ(s.page_size, 32);
  EXPECT_EQ(s.layout, ASSAY_LAYOUT_HND);
  EXPECT_EQ(s.table, ASSAY_TABLE_TOKEN);
  EXPECT_TRUE(s.swa_index);
  EXPECT_EQ(s.strided, (StridedOperands{true, true, true, true, false, true}));
  EXPECT_TRUE(s.drawn_slots);
  EXPECT_EQ(s.window_left, 5);
  EXPECT_EQ(s.window_right, 2);
  EXPECT_EQ(s.chunk, 64);
  EXPECT_EQ(s.softcap, 30);
  EXPECT_EQ(s.alibi, ASSAY_ALIBI_SQRT);
  EXPECT_TRUE(s.sinks);
  EXPECT_EQ(s.softmax_scale, 0.5);
  ASSERT_EQ(s.batch.groups.size(), 1u);
  EXPECT_EQ(s.batch.groups[0], (BatchGroup{3, 4, 50, 20}));
  EXPECT_EQ(s.recipe, InputRecipe::kBoundary);
  EXPECT_EQ(s.min_blocks, 99);
  EXPECT_EQ(s.relations, kRelateOrder | kRelateChunked);
  EXPECT_EQ(s.seed, 9u);
}

TEST(Scenario, RoundTripOfRandomScenarios) {
  ScenarioGenerator random(1);
  for (int i = 0; i < 5000; ++i) {
    const Scenario s = random.valid();
    const std::string text = print(s);
    Scenario read;
    ASSERT_NO_THROW(read = parse_scenario(text)) << text;
    ASSERT_EQ(read, s) << text;
    ASSERT_EQ(print(read), text);
  }
}

struct Mistake {
  const char* line;
  int column;
  const char* message;  // start of it
};

TEST(Scenario, MistakesWithPlaceAndMessage) {
  const Mistake mistakes[] = {
      {"", 1, "a scenario starts with its op; accepted: prefill, paged"},
      {"h=4 batch=1q1", 1, "a scenario starts with its op, not \"h=4\"; accepted: prefill, paged"},
      {"pagd batch=1q1", 1, "op: unknown value \"pagd\" (did you mean \"paged\"?); accepted: prefill, paged"},
      {"paged pagesize=4 batch=1q1", 7,
       "unknown field \"pagesize\" (did you mean \"page\"?); accepted fields: h, d, q, kv,"},
      {"paged zzzzzz=4 batch=1q1", 7, "unknown field \"zzzzzz\"; accepted fields: h, d, q, kv,"},
      {"paged wndow=4 batch=1q1", 7, "unknown field \"wndow\" (did you mean \"window\"?)"},
      {"paged batch=1q1 page", 17, "\"page\" needs a value, page=VALUE; accepted: 1 to 65536"},
      {"paged batch=1q1 pge", 17,
       "\"pge\" is not NAME=VALUE (did you mean \"page\"?); accepted fields: h, d,"},
      {"paged batch=1q1 page=", 22, "page: value expected; accepted: 1 to 65536"},
      {"paged op=paged batch=1q1", 7, "the op stands first in the line, without \"op=\""},
      {"paged batch=1q1 d=4 d=8", 21, "field \"d\" is given twice; leave one out"},
      {"paged d=128", 1, "batch= is required, e.g. batch=64q1s4k_2q512s2k"},
      {"prefill batch=1q1 page=3", 19, "field \"page\" has no meaning for prefill"},
      {"prefill index=full batch=1q1", 9, "field \"index\" has no meaning for prefill"},
      {"paged relate=pages+pges batch=1q1", 20,
       "relate: unknown relation \"pges\" (did you mean \"pages\"?); accepted: none, or any of pages, order, "
       "alone, split, chunked, window, sink, strides joined by +"},
      {"paged relate=pages+pages batch=1q1", 20, "relate: \"pages\" is given twice"},
      {"paged sinks=off relate=pages+sink batch=1q1", 17,
       "relate=sink compares sinks that weigh nothing with none; write sinks=on"},
      {"paged input=dyadic batch=1q1s9 scale=2", 32, "input=dyadic sets the scale to ln 2"},
      {"paged blocks=0 batch=1q1", 14, "blocks: 0 is too small; expected a whole number from 1 to 67108864"},
      {"paged layout=nhb batch=1q1", 14,
       "layout: unknown value \"nhb\" (did you mean \"nhd\"?); accepted: nhd, hnd, x, shuffled, mla"},
      {"paged mask=none batch=1q1", 12, "mask: unknown value \"none\"; accepted: causal, full, cross, tree"},
      {"paged table=none batch=1q1", 13, "table: unknown value \"none\"; accepted: block, csr, token"},
      {"paged out=int8 batch=1q1", 11, "out: unknown value \"int8\"; accepted: fp32, bf16, fp16"},
      {"paged kv=int32 batch=1q1", 10,
       "kv: unknown value \"int32\" (did you mean \"int8\"?); accepted: fp32, bf16"},
      {"paged kv=bf16:head batch=1q1", 14, "kv: bf16 values carry no scale; leave out \":head\""},
      {"paged kv=int8:token_hed/bf16 batch=1q1", 15,
       "kv: scale: unknown value \"token_hed\" (did you mean \"token_head\"?); accepted: tensor"},
      {"paged kv=int8:token_head/bf batch=1q1", 26, "kv: unknown value \"bf\" (did you mean \"bf16\"?)"},
      {"paged h=0 batch=1q1", 9, "h: 0 is too small; expected a whole number from 1 to 1024"},
      {"paged h=8/-2 batch=1q1", 11, "h: -2 is negative; expected a whole number from 1 to 1024"},
      {"paged h=8/x batch=1q1", 11, "h: \"x\" is not a number; expected a whole number from 1 to 1024"},
      {"paged d=4096 batch=1q1", 9, "d: 4096 is too large; expected a whole number from 1 to 1024"},
      {"paged d=64,128 batch=1q1", 11,
       "d: unexpected \",128\" after the number; expected a whole number from 1 to 1024; a single scenario "
       "takes one value: "
       "axes (a,b {a,b} [a:b:s]) belong in a suite"},
      {"paged page=12x batch=1q1", 14,
       "page: unexpected \"x\" after the number; expected a whole number, k = 1024 and m = 1024^2"},
      {"paged window=-2 batch=1q1", 14, "window: -2 is too small"},
      {"paged window=3/-9 batch=1q1", 16, "window: -9 is too small"},
      {"paged chunk=-1 batch=1q1", 13, "chunk: -1 is negative"},
      {"paged cap=-3 batch=1q1", 11,
       "cap: -3 is out of range; expected 0 (off) or a number from 1e-30 to 1e+30"},
      {"paged cap=nan batch=1q1", 11, "cap: \"nan\" is not a finite number"},
      {"paged scale=0 batch=1q1", 13,
       "scale: 0 is out of range; expected auto or a number from 1e-30 to 1e+30"},
      {"paged sinks=yes batch=1q1", 13, "sinks: unknown value \"yes\"; accepted: off, on"},
      {"paged strides=q+vk batch=1q1", 17,
       "strides: unknown operand \"vk\" (did you mean \"kv\"?); accepted: packed, or any of q, kv"},
      {"paged strides=q+q batch=1q1", 17, "strides: \"q\" is given twice"},
      {"paged seed=-1 batch=1q1", 12,
       "seed: \"-1\" is not accepted; expected a whole number from 0 to 2^64-1"},
      {"paged seed=18446744073709551616 batch=1q1", 12, "seed: \"18446744073709551616\" is not accepted"},
      {"paged batch=(1q1", 13, "\"(\" is never closed; expected \")\""},
      {"paged batch=1q1)", 16, "\")\" closes nothing"},
      {"paged batch=f(1]", 16, "\"]\" where \")\" is expected"},
      // A rule points at the last word it looks at.
      {"paged h=32/7 batch=1q1", 7,
       "32 query heads cannot share 7 KV heads evenly; make Q a multiple of KV, e.g. h=28/7"},
      {"paged h=8/2 batch=1q1 layout=mla", 23,
       "layout=mla holds one latent row per token, so it has one KV head, not 2; write h=8/1"},
      {"paged chunk=8 batch=1q1 mask=tree", 25, "chunk=8 is local attention, which is causal"},
      {"paged h=1024 batch=64q1s100k", 14, "the case needs about "},
      // Data ops have few fields.
      {"merge_states batch=1q1 kv=int8", 24,
       "field \"kv\" has no meaning for merge_states; leave it out, or start the line with prefill, paged, "
       "cache_write, cache_gather, decode_splitkv"},
      {"merge_states states=0 batch=1q1", 21, "states: 0 is too small"},
      {"decode_splitkv batch=1q2s9", 16, "decode_splitkv takes one row of a request"},
      {"decode_splitkv states=4 batch=1q1s9", 16, "decode_splitkv makes as many states as part="},
      {"quantize_int8 from=codes batch=1q1", 15, "quantize_int8 reads fp32, bf16 or fp16"},
      {"cache_write sources=2 batch=1q1", 13, "sources=2 are the latent and the rope part"},
      {"cache_write h=4/1 d=64 layout=mla sources=2 batch=1q1", 35,
       "sources=2 are the latent and the rope part"},
      {"step sources=2 batch=1q1", 6, "sources=2 are the latent and the rope part"},
      {"step d=96/64 sources=2 input=exact batch=1q1", 24,
       "input=exact knows the answer for keys of each head"},
      {"step d=96/64 sources=2 ranks=2 batch=1q1", 24,
       "ranks=2 share causal attention over heads of K and V"},
      {"ps_metadata workers=0 batch=1q1", 21, "workers: "},
      {"ps_metadata tile=0/16 batch=1q1", 18, "tile: "},
      {"ps_metadata table=csr batch=1q1", 13, "field \"table\" has no meaning"},
      {"tree_tables tree=deep batch=1q1", 18, "tree: unknown value"},
      {"decode_splitkv sinks=on batch=1q1s9", 16, "field \"sinks\" has no meaning for decode_splitkv"},
      {"cache_write batch=1q9s4", 13, "cache_write takes q of the s tokens in the cache"},
      {"cache_write kv=fp8_e4m3:request_head batch=1q1", 13, "cache_write knows no request"},
      {"cache_gather from=fp16 batch=1q1", 14, "field \"from\" has no meaning for cache_gather"},
      {"quantize_int8 q=int8:request_head batch=1q1", 15, "quantize_int8 writes int8 or fp8"},
      {"quantize_int8 strides=kv batch=1q1", 15, "quantize_int8 can have strided q, out, scales"},
      {"step slots=drawn batch=1q1", 6, "field \"slots\" has no meaning for step"},
      {"paged slots=drawn batch=1q1", 7, "slots=drawn needs an entry for every token; write table=token"},
      {"paged layout=x strides=last batch=1q1", 16, "strides=last puts dimensions apart"},
      {"cache_gather input=exact batch=1q1", 14, "cache_gather takes input=normal or outlier"},
  };
  for (const Mistake& m : mistakes) {
    try {
      parse_scenario(m.line, {"x.suite", 3, 11});
      ADD_FAILURE() << "accepted: " << m.line;
    } catch (const InputError& error) {
      EXPECT_EQ(error.place().file, "x.suite");
      EXPECT_EQ(error.place().line, 3);
      EXPECT_EQ(error.place().column, 10 + m.column) << m.line << "\n" << error.what();
      EXPECT_THAT(error.message(), StartsWith(m.message)) << m.line;
    }
  }
}

TEST(Scenario, MessageNamesThePlace) {
  try {
    parse_scenario("paged mask=tre batch=1q1", {"masks.suite", 12, 1});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "masks.suite:12:12: mask: unknown value \"tre\" (did you mean \"tree\"?); accepted: causal, "
                 "full, cross, tree");
  }
}

TEST(Fields, TableIsWhole) {
  const Scenario defaults;
  for (const Field& field : fields()) {
    EXPECT_FALSE(field.meaning.empty()) << field.name;
    EXPECT_FALSE(field.accepted.empty()) << field.name;
    EXPECT_EQ(field_index(field.name), &field - fields().data());
    if (field.name == "batch") continue;
    EXPECT_TRUE(field.is_default(defaults)) << field.name;
    std::string text;
    field.print(defaults, text);
    // Where the default is a value (not a sentence), it is the one that prints.
    if (field.name != "op" && field.default_text.find(' ') == std::string::npos) {
      EXPECT_EQ(field.default_text, text) << field.name;
    }
    Scenario read;
    field.parse({text, 0}, read);
    EXPECT_EQ(read, defaults) << field.name;
  }
  EXPECT_EQ(field_index("nothing"), -1);
}

// A field's parse must set everything its print shows, and touch nothing of another field.
TEST(Fields, ParseSetsOneFieldOnly) {
  ScenarioGenerator random(2);
  for (int i = 0; i < 2000; ++i) {
    const Scenario from = random.any(), base = random.any();
    for (const Field& field : fields()) {
      Scenario to = base;
      std::string text, after;
      field.print(from, text);
      field.parse({text, 0}, to);
      field.print(to, after);
      EXPECT_EQ(after, text);
      for (const Field& other : fields()) {
        std::string was, is;
        other.print(base, was);
        other.print(to, is);
        if (other.name != field.name) {
          ASSERT_EQ(is, was) << field.name << " changed " << other.name;
        }
      }
    }
  }
}

TEST(Fields, ReadmeHoldsTheTable) {
  std::ifstream in(ASSAY_SOURCE_DIR "/harness/scenario/README.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(fields_markdown()))
      << "paste the output of fields_markdown() into README.md";
}

}  // namespace
}  // namespace assay
