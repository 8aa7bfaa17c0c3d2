// SPDX-License-Identifier: Apache-2.0
// Shapes a graph must serve, and replays of the fake backend: one that reads the device's lengths and two
// that keep what the host said at capture.
#include "harness/check/graph/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/device/testing/small_problem.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

class Replays : public ::testing::TestWithParam<int32_t> {
 protected:
  const Backend backend = Backend::load(ASSAY_BINARY_DIR "/testing/libassay_fake.so");
  std::string check(const std::string& behaviour, RelationResult& result, bool strided = false) const {
    Problem problem = testkit::small_problem(GetParam());
    problem.strided.out = strided;
    const std::string op = GetParam() == ASSAY_OP_PAGED ? "paged_" : "prefill_";
    const assay_kernel* kernel = backend.find(op + behaviour + "_fake");
    EXPECT_NE(kernel, nullptr);
    return check_graph(backend, *kernel, backend.device(0), problem, default_arithmetic(), 1e9, result);
  }
};

TEST_P(Replays, ServeEveryShapeWithEqualBits) {
  RelationResult result;
  EXPECT_EQ(check("ok", result), "");
  EXPECT_TRUE(result.checked);
  EXPECT_TRUE(result.same_bits);
  EXPECT_EQ(result.calls, 5);
  EXPECT_EQ(result.rows, 13 + 13 + 13 + 10 + 11) << "q of 1, 9, 3; the last request as padding of 0 and 1";
  EXPECT_EQ(result.note, "");
}

// A transposed LSE keeps the stride of the capture, whatever number of rows is replayed.
TEST_P(Replays, ServeStridedOutputsWithEqualBits) {
  RelationResult result;
  EXPECT_EQ(check("ok", result, true), "");
  EXPECT_TRUE(result.same_bits);
  EXPECT_EQ(result.calls, 5);
}

TEST_P(Replays, ThatKeepTheLengthsOfTheCaptureAreWrong) {
  RelationResult result;
  EXPECT_THAT(check("frozen", result), HasSubstr("replayed for requests in reverse: "));
  EXPECT_EQ(result.calls, 1) << "the captured shape itself was right";
}

TEST_P(Replays, ThatEndAtTheLengthsOfTheCaptureAreWrong) {
  RelationResult result;
  EXPECT_THAT(check("gridbound", result), HasSubstr("replayed for requests in reverse: "));
}

TEST_P(Replays, ThatWriteBehindTheLastRequestAreWrong) {
  RelationResult result;
  EXPECT_THAT(check("padding", result),
              HasSubstr("replayed for padding of length 0: untouched: 2 bytes of o changed that the op must "
                        "leave alone"));
  EXPECT_EQ(result.calls, 4);
}

TEST_P(Replays, AreRefreshedForTheirLengths) {
  RelationResult result;
  EXPECT_EQ(check("refreshed", result), "");
  EXPECT_EQ(result.calls, 5);
  RelationResult stale;
  EXPECT_THAT(check("stale", stale), HasSubstr("replayed for requests in reverse: "));
}

TEST_P(Replays, OfWhatIsRefusedAreNone) {
  RelationResult result;
  EXPECT_EQ(check("refuseplan", result), "");
  EXPECT_FALSE(result.checked);
  EXPECT_THAT(result.note, HasSubstr("missing plans"));
}

TEST_P(Replays, NeedThePromise) {
  const std::string op = GetParam() == ASSAY_OP_PAGED ? "paged_" : "prefill_";
  EXPECT_EQ(graph_refusal(backend, *backend.find(op + "ok_fake")), "");
  EXPECT_THAT(graph_refusal(backend, *backend.find(op + "undeclared_fake")), HasSubstr("promise"));
  const Backend cpu = Backend::load("cpu");
  EXPECT_THAT(graph_refusal(cpu, *cpu.kernels()[0]), HasSubstr("missing capture and replay in backend cpu"));
}

INSTANTIATE_TEST_SUITE_P(Ops, Replays, ::testing::Values(ASSAY_OP_PAGED, ASSAY_OP_PREFILL));

TEST(GraphShapes, FitTheCapturedOneAndShareItsPool) {
  const Problem p = testkit::small_problem();
  const std::vector<GraphShape> shapes = graph_shapes(p);
  ASSERT_EQ(shapes.size(), 5u);
  bool longer = false;
  for (const GraphShape& s : shapes) {
    const Problem& d = s.call.problem;
    EXPECT_EQ(d.num_blocks, shapes[0].call.problem.num_blocks) << s.name;
    EXPECT_LE(d.total_q(), p.total_q());
    EXPECT_LE(d.max_kv_len(), p.max_kv_len());
    EXPECT_EQ(d.requests.size(), p.requests.size());
    for (size_t r = 0; r < p.requests.size(); ++r) longer |= d.requests[r].kv_len > p.requests[r].kv_len;
  }
  EXPECT_TRUE(longer) << "a request longer than it was at capture";
  Problem one = p;
  one.requests = {{1, 1}};
  place_pages(one);
  EXPECT_EQ(graph_shapes(one).size(), 1u) << "shapes equal to an earlier one are left out";
}

// Halved, the contexts end inside chunks: each request is then two batches instead of one.
TEST(GraphShapes, KeepTheEntriesThatWereCaptured) {
  const auto names = [](const std::string& line) {
    const Problem p = make_problem(parse_scenario(line));
    const int64_t room = op_of(p).entries(p) + p.padded_rows;
    std::string text;
    for (const GraphShape& s : graph_shapes(p)) {
      EXPECT_EQ(op_of(p).entries(s.call.problem) + s.call.problem.padded_rows, room) << s.name;
      text += s.name + "; ";
    }
    return text;
  };
  EXPECT_EQ(names("local_batches page=2 chunk=4 batch=1q4s16_1q4s8"),
            "the captured shape; requests in reverse; padding of length 0; padding of length 1; ");
  EXPECT_EQ(
      names("local_batches pad=2 page=2 chunk=4 batch=1q4s16_1q4s8"),
      "the captured shape; requests in reverse; halved contexts; padding of length 0; padding of length 1; ");
}

}  // namespace
}  // namespace assay
