// SPDX-License-Identifier: Apache-2.0
// assay facts, --set and the shapes of `assay kernels` as a user runs them, on kernels that do one thing
// their own way each.
#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Facts : public Program {
 protected:
  // The value of one fact of a kernel, whose sheet is asked for once.
  std::string fact(const std::string& kernel, const std::string& name) {
    nlohmann::json& sheet = sheets_[kernel];
    if (sheet.is_null()) {
      const Output o = run({"facts", kernel, "--backend", kFake, "--json"});
      EXPECT_EQ(o.code, 0) << o.err;
      sheet = nlohmann::json::parse(o.out).at(0);
    }
    for (const auto& f : sheet["facts"])
      if (f["fact"] == name) return f["value"];
    if (name == "contract") return sheet["contract"];
    return "no such fact";
  }

 private:
  std::map<std::string, nlohmann::json> sheets_;
};

TEST_F(Facts, TellWhatEachKernelDoesItsOwnWay) {
  for (const char* op : {"paged_", "prefill_"}) {
    const std::string at(op);
    EXPECT_EQ(fact(at + "ok_fake", "lse"), "natural, laid out by its strides");
    EXPECT_EQ(fact(at + "ok_fake", "contract"), "");
    EXPECT_EQ(fact(at + "lse2_fake", "lse"), "base 2, laid out by its strides");
    EXPECT_EQ(fact(at + "nolse_fake", "contract"), "no_lse");
    EXPECT_EQ(fact(at + "headsfirst_fake", "lse"), "natural, dense, heads first");
    EXPECT_EQ(fact(at + "headsfirstlie_fake", "lse"), "natural, dense, rows first");
    EXPECT_EQ(fact(at + "noempty_fake", "request without keys"), "wrong");
    EXPECT_EQ(fact(at + "noempty_fake", "contract"), "no_empty_requests");
    EXPECT_EQ(fact(at + "flaky_fake", "repeatable to the bit"), "no");
    EXPECT_THAT(fact(at + "frozen_fake", "graphs"), ::testing::StartsWith("not safe"));
    EXPECT_EQ(fact(at + "ok_fake", "graphs"), "safe to replay at other lengths");
    EXPECT_EQ(fact(at + "packedonly_fake", "strides").substr(0, 2), "kv");
    EXPECT_THAT(fact(at + "packedonly_fake", "strides"), HasSubstr("refused: q"));
    EXPECT_THAT(fact(at + "zeros_fake", "lse"), HasSubstr("not right under any"));
  }
  EXPECT_EQ(fact("paged_leak_fake", "unused K and V"), "must be finite");
  EXPECT_EQ(fact("paged_leak_fake", "contract"), "finite_unused");
  EXPECT_EQ(fact("paged_ok_fake", "batch invariant"), "yes");
}

// Of a step nobody declares another LSE; the rest is tried like any kernel's.
TEST_F(Facts, OfAWholeStep) {
  const Output o = run({"facts", "step_unified_cpu", "--backend", "cpu"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ContainsRegex("right where unused memory is finite +right\n +passed +step h=4/2 "));
  EXPECT_THAT(o.out, ContainsRegex("unused K and V +may hold NaN\n"));
  EXPECT_THAT(o.out, ContainsRegex("repeatable to the bit +yes\n"));
  EXPECT_THAT(o.out, ContainsRegex("request of no rows and no keys +right\n"));
  const Output wrong =
      run({"facts", "step_other_table", "--backend", ASSAY_BINARY_DIR "/testing/libassay_step_faults.so"});
  EXPECT_THAT(wrong.out, Not(HasSubstr("contract it needs")));
}

// What the op of a data op has of these facts: of the language, not of a list of ops.
TEST_F(Facts, OfDataOps) {
  const Output write = run({"facts", "cache_write_cpu", "--backend", "cpu"});
  EXPECT_EQ(write.code, 0) << write.err;
  EXPECT_THAT(write.out, ContainsRegex("right +right\n +passed +cache_write h=4/2 d=64 "));
  EXPECT_THAT(write.out, ContainsRegex("rows of padding behind the last +right\n"));
  EXPECT_THAT(write.out, ContainsRegex("a request of no rows +right\n"));
  EXPECT_THAT(write.out, ContainsRegex("repeatable to the bit +yes\n"));
  EXPECT_THAT(write.out, ContainsRegex("strides +q kv\n"));
  const Output split = run({"facts", "decode_splitkv_cpu", "--backend", "cpu"});
  EXPECT_EQ(split.code, 0) << split.err;
  EXPECT_THAT(split.out, HasSubstr("contract it needs")) << "one row of a request is all that its op takes";
  const Output wrong =
      run({"facts", "merge_base2", "--backend", ASSAY_BINARY_DIR "/testing/libassay_data_op_faults.so"});
  EXPECT_THAT(wrong.out, AllOf(ContainsRegex("right +wrong\n"), Not(HasSubstr("contract it needs"))));
}

TEST_F(Facts, ShowTheLinesAndSurviveKernelsThatDoNot) {
  const Output o = run({"facts", "paged_leak_fake", "--backend", kFake});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ContainsRegex("unused K and V +must be finite\n +wrong +paged h=4/2 d=64 batch="));
  EXPECT_THAT(o.out, HasSubstr("[finite_unused]"));
  EXPECT_THAT(o.out, HasSubstr("reads unused memory"));
  EXPECT_THAT(run({"facts", "paged_leak_fake", "--backend", kFake, "--no-lines"}).out,
              Not(HasSubstr("batch=")));
  EXPECT_THAT(fact("paged_segfault_fake", "lse"), HasSubstr("not right under any"));
  EXPECT_EQ(run({"facts", "no_such", "--backend", kFake}).code, 2);
  EXPECT_EQ(run({"facts", "paged_ok_fake", "--backend", kFake, "--set", "d=many"}).code, 2);
}

TEST_F(Facts, AKernelOfOneShapeIsFoundAndSuitesAreAimedAtIt) {
  const Output shapes = run({"kernels", "--backend", kFake, "--kernel", "paged_oneshape_fake"});
  EXPECT_THAT(shapes.out, AllOf(HasSubstr("plainest h=8/2 d=128"), ContainsRegex("page +16\n"),
                                ContainsRegex("d +128\n"), ContainsRegex("plain bf16 +yes"),
                                ContainsRegex("window left +yes"), ContainsRegex("head dim 80 +-")));
  const std::string suite = "paged h=4/2 d=64,80 page=16,32 batch=1q1s33 seed=1";
  const std::vector<std::string> check = {"check", suite,      "--backend",
                                          kFake,   "--kernel", "paged_oneshape_fake"};
  EXPECT_THAT(run(check).out, HasSubstr("4 unsupported"));
  std::vector<std::string> aimed = check;
  aimed.insert(aimed.end(), {"--set", "h=32/8 d=128 page=16"});
  const Output right = run(aimed);
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_THAT(right.out + right.err,
              AllOf(HasSubstr("1 passed"), HasSubstr("3 lines left out, having occurred before")));
}

TEST_F(Facts, FieldsSetAreNamedByColumnAndContradictionsAreSaid) {
  const Output list = run({"list", "paged h=4/2,4/1 d=64 batch=1q1s9",
                           "paged h=4/1 d=576/512 layout=mla batch=1q1s9", "--set", "h=8/2"});
  EXPECT_EQ(list.out, "paged h=8/2 d=64 batch=1q1s9\n");
  EXPECT_THAT(list.err,
              HasSubstr("1 case left out for contradicting --set, first paged h=4/1 d=576/512 layout=mla"));
  const Output bad = run({"list", "smoke", "--set", "h=32/8 dd=128"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--set:1:8: unknown field \"dd\""));
}

TEST_F(Facts, CoverageNamesWhatIsNotThere) {
  const Output o = run({"list", "paged h=4/2 d=64 batch=1q1s9", "--coverage"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("paged: 1 cases; values of two fields together: "),
                           HasSubstr("never      mask=tree"), ContainsRegex("tokens of a page +> 64: NONE")));
  const auto json = nlohmann::json::parse(run({"list", "paged batch=1q1s9", "--coverage", "--json"}).out);
  EXPECT_EQ(json["ops"][1]["cases"], 1);
}

}  // namespace
}  // namespace assay
