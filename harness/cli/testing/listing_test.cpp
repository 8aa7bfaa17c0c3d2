// SPDX-License-Identifier: Apache-2.0
// What the program says of itself and of a case: causes in their groups, what a case cannot show, what a
// field needs, where a command holds.
#include <map>
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program.hpp"

namespace assay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Listing : public Program {};

// Whoever asks whether a mistake has a name need not read the sources.
TEST_F(Listing, ExplainListsTheCausesItKnows) {
  const Output o = run({"explain", "--causes"});
  EXPECT_EQ(o.code, 0) << o.err;
  const auto at = [&](const std::string& text) { return o.out.find("\n" + text); };
  EXPECT_THAT(o.out, AllOf(StartsWith("What a kernel of prefill or paged does"),
                           HasSubstr("  the sliding window leaves out keys")));
  // Symptoms apart, kernels before steps, stages and ranks last.
  const std::vector<size_t> order = {
      at("  mask.window_short "),  at("Symptoms: "),        at("  race.unstable "),
      at("What a step does, "),    at("  window_missing "), at("Symptoms of a step:"),
      at("  row_missing "),        at("What stages "),      at("  left_out "),
      at("What a step does when"), at("  captured_table "), at("  turns_other ")};
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end())) << o.out;
  EXPECT_NE(order.back(), std::string::npos);
  EXPECT_THAT(o.out, HasSubstr("the window is left out = mask.window_ignored\n"));
  const nlohmann::json list = nlohmann::json::parse(run({"explain", "--causes", "--json", "-"}).out);
  EXPECT_EQ(list[0]["cause"], "mask.window_short");
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& c : list) by_name[c["cause"]] = c;
  EXPECT_EQ(by_name.size(), list.size());
  EXPECT_EQ(by_name["output.nan"]["kind"], "symptom");
  EXPECT_EQ(by_name["mask.window_ignored"]["same"], nlohmann::json::array({"window_missing"}));
  EXPECT_EQ(by_name["left_out"]["said"], "stage");
  EXPECT_EQ(by_name["sink_missing"]["said"], "any");
  EXPECT_EQ(by_name["sink_missing"]["of"], "step");
  EXPECT_EQ(run({"explain", "--causes", "--score"}).code, 2);
}

// A softmax scale that loses nothing hides where it is multiplied in.
TEST_F(Listing, DescribeSaysWhatAScaleHides) {
  const auto said = [&](const std::string& line) { return run({"describe", line}).out; };
  const std::string power =
      "\nhides     that Q is rounded to bf16 once it is multiplied by the softmax scale: 0.125 is a power of "
      "two";
  EXPECT_THAT(said("paged h=4/2 d=64 batch=1q1s9"), HasSubstr(power));
  EXPECT_THAT(said("step h=4/2 d=64 batch=1q1s9"), HasSubstr(power));
  EXPECT_THAT(said("paged h=4/2 d=96 scale=1 batch=1q1s9"),
              HasSubstr("\nhides     a softmax scale that is left out: it is 1"));
  for (const char* line : {"paged h=4/2 d=96 batch=1q1s9", "paged h=4/2 d=64 scale=0.1 batch=1q1s9",
                           "paged h=4/2 d=64 q=fp32 batch=1q1s9", "paged h=4/2 d=64 q=int8 batch=1q1s9",
                           "cache_write h=4/2 d=64 batch=1q1s9"})
    EXPECT_THAT(said(line), Not(HasSubstr("hides"))) << line;
}

// A kernel whose codes wrap around passes where no value is beyond the largest code.
TEST_F(Listing, DescribeCountsValuesBeyondTheLargestCode) {
  const auto said = [&](const std::string& more) {
    return run({"describe", "step q=fp32 h=4/2 d=16 from=fp32 batch=2q1s40_1q9s30 seed=108 " + more}).out;
  };
  EXPECT_THAT(said("kv=int8:head"),
              AllOf(HasSubstr("\ncodes     2 of 352 new values of k and 1 of 352 new values of v lie beyond"),
                    Not(HasSubstr("beyond the largest code: none"))));
  EXPECT_THAT(said("kv=int8:head input=outlier"),
              HasSubstr("\nhides     what becomes of values beyond the largest code: none of 352 new values "
                        "of k and 352 new values of v is\n"));
  for (const char* none : {"kv=int8:token_head", "kv=bf16", "kv=int8:head write=off"})
    EXPECT_THAT(said(none), Not(HasSubstr("beyond the largest code"))) << none;
  EXPECT_THAT(run({"describe", "step kv=int8:head batch=64q1s128k"}).out, HasSubstr("not counted"));
}

TEST_F(Listing, DescribeFieldsSaysWhatAFieldNeeds) {
  EXPECT_THAT(run({"describe", "fields", "index"}).out,
              HasSubstr("\n          needs for swa: index=swa keeps the pages a window or chunk can still "
                        "see; it needs a window"));
  EXPECT_THAT(run({"describe", "fields", "states"}).out,
              AllOf(HasSubstr("\n          needs in decode_splitkv: "), HasSubstr("add part=0")));
  EXPECT_THAT(run({"describe", "fields", "window"}).out, Not(HasSubstr("needs")));
}

// Rows name no folder of a machine, so what is printed says where their commands hold.
TEST_F(Listing, RepeatSaysFromWhereALibraryIsNamed) {
  const std::string check = shell_quote(ASSAY_BINARY_DIR "/assay") + " check " + shell_quote(kLine) +
                            " --kernel paged_droppage_fake --no-table --backend ";
  const std::string here = "cd " + shell_quote(ASSAY_BINARY_DIR "/testing") + " && ";
  const Output relative = run_shell(here + check + "./libassay_fake.so");
  EXPECT_THAT(relative.out, AllOf(HasSubstr("--backend ./libassay_fake.so"),
                                  HasSubstr("\n(repeat: from this folder, " ASSAY_BINARY_DIR "/testing)\n")));
  EXPECT_THAT(run_shell(here + check + shell_quote(kFake)).out, Not(HasSubstr("from this folder")));
}

}  // namespace
}  // namespace assay
