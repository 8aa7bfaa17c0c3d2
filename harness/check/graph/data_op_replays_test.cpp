// SPDX-License-Identifier: Apache-2.0
// Replays of data ops on the emulator: right kernels pass at every shape, and a call that was captured
// with what belongs to one shape is found out at another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "harness/check/graph/graph.hpp"
#include "harness/scenario/scenario.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

using ::testing::HasSubstr;

const char* const kLibrary = ASSAY_BINARY_DIR "/emulator/libassay_emu32.so";
class BlockReplays : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kLibrary)) GTEST_SKIP() << kLibrary << " is not part of this build";
  }
  static std::string check(const Backend& backend, const assay_kernel& kernel, const std::string& line,
                           RelationResult& result) {
    return check_graph(backend, kernel, backend.device(0), make_problem(parse_scenario(line)),
                       default_arithmetic(), 1e9, result);
  }
};

struct Block {
  const char *kernel, *line;
  int64_t rows;  // of all shapes
};
// Requests of 7, 3, 3 and 1 rows: 14 in order, in reverse and with halved contexts, 10 without the second
// half, 12 with one row for each of it.
constexpr Block kBlocks[] = {
    {"merge_states_gpu", "merge_states h=4 d=64 states=3 strides=q+out sinks=on batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"cache_write_gpu", "cache_write h=4/2 d=64 kv=int8:token_head pad=2 batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"cache_gather_gpu", "cache_gather h=4/2 d=64 table=csr strides=out batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"quantize_int8_gpu", "quantize_int8 h=4 d=64 strides=scales batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"decode_splitkv_gpu", "decode_splitkv h=4/2 d=64 part=64 strides=out batch=1q1s150_2q1s33_1q1s9",
     3 * 4 + 2 + 4},
    {"persistent_prefill_gpu",
     "persistent_prefill h=4/2 d=32 workers=5 tile=2/4 strides=out batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"persistent_paged_gpu", "persistent_paged h=4/2 d=32 workers=7 tile=1/8 page=4 batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"reduce_gpu", "reduce h=4/2 d=32 workers=5 tile=2/4 strides=out batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"expand_pages_gpu", "expand_pages page=4 table=csr batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"dcp_lengths_gpu", "dcp_lengths ranks=3 interleave=4 batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"local_batches_gpu", "local_batches pad=9 page=4 strides=out chunk=8 batch=1q7s9_2q3s30_1q1s9",
     3 * 14 + 10 + 12},
    {"split_batch_gpu", "split_batch threshold=2 batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"chunk_metadata_gpu", "chunk_metadata budget=16 batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"decode_metadata_gpu", "decode_metadata page=4 table=token batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"cascade_metadata_gpu", "cascade_metadata prefix=8 page=4 batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"tree_tables_gpu", "tree_tables page=4 table=token batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
    {"swa_tree_table_gpu", "swa_tree_table page=4 strides=out batch=1q7s9_2q3s30_1q1s9", 3 * 14 + 10 + 12},
};

TEST_F(BlockReplays, ServeEveryShape) {
  const Backend backend = Backend::load(kLibrary);
  for (const Block& b : kBlocks) {
    RelationResult result;
    EXPECT_EQ(check(backend, *backend.find(b.kernel), b.line, result), "") << b.kernel;
    EXPECT_EQ(result.calls, 5) << b.kernel << result.note;
    EXPECT_EQ(result.rows, b.rows) << b.kernel;
    EXPECT_EQ(result.note, "");
  }
}

// The right kernels, called with lengths of their own making: what is captured belongs to one shape.
using Run = decltype(assay_kernel::run);
Run original = nullptr;
int32_t all_rows[2] = {};
int without_lengths(const assay_kernel* self, const assay_problem* p, const assay_tensors* t,
                    assay_plan* plan, void* stream, char* error, size_t size) {
  assay_tensors frozen = *t;
  all_rows[1] = static_cast<int32_t>(p->rows);  // as many rows as there were at capture
  frozen.cu_q.data = all_rows;
  frozen.cu_q.stride[0] = 1;
  assay_problem one = *p;
  one.requests = 1;
  return original(self, &one, &frozen, plan, stream, error, size);
}

TEST_F(BlockReplays, WithTheRowsOfTheCaptureAreWrong) {
  const Backend backend = Backend::load(kLibrary);
  for (const Block& b : {kBlocks[0], kBlocks[3]}) {
    assay_kernel kernel = *backend.find(b.kernel);
    original = kernel.run;
    kernel.run = without_lengths;
    RelationResult result;
    const std::string reason = check(backend, kernel, b.line, result);
    EXPECT_THAT(reason, HasSubstr("replayed for padding of length 0: ")) << b.kernel;
    EXPECT_THAT(reason, HasSubstr("untouched: ")) << b.kernel;
  }
}

// Slots, starts and tables copied at capture instead of read at replay.
std::vector<int64_t> slots;
int with_old_slots(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan* plan,
                   void* stream, char* error, size_t size) {
  assay_tensors frozen = *t;
  const auto* now = static_cast<const int64_t*>(t->slot_mapping.data);
  slots.assign(now, now + p->rows);
  frozen.slot_mapping.data = slots.data();
  return original(self, p, &frozen, plan, stream, error, size);
}

TEST_F(BlockReplays, WithTheSlotsOfTheCaptureAreWrong) {
  const Backend backend = Backend::load(kLibrary);
  assay_kernel kernel = *backend.find(kBlocks[1].kernel);
  original = kernel.run;
  kernel.run = with_old_slots;
  RelationResult result;
  EXPECT_THAT(check(backend, kernel, kBlocks[1].line, result),
              HasSubstr("replayed for requests in reverse: "));
}

}  // namespace
}  // namespace assay
