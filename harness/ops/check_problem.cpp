// SPDX-License-Identifier: Apache-2.0
// Every invariant of a Problem in one place. Users meet the rules of the scenario language first, with a
// file and a column; these guard Problems built by hand and shard files, so a broken one is a bug
// (CheckError). A new field: its range here, and how it restricts the others.
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();  // cu_q, cu_kv are int32

void check_name(std::span<const Name> names, int32_t value, const char* field) {
  ASSAY_CHECK(name_of(names, value) != "?", "{} is {}, accepted are {}", field, value, accepted(names));
}

void check_format(int32_t format, const char* field) {
  ASSAY_CHECK(format == ASSAY_FP32 || format_is_float16(format) || format_is_quantized(format),
              "{} is {}, accepted are fp32, bf16, fp16, the fp8 formats and int8", field,
              name_of(format_names(), format));
}

void check_scale(int32_t format, int32_t scale, const char* field) {
  check_name(scale_names(), scale, field);
  ASSAY_CHECK(scale == ASSAY_SCALE_NONE || format_is_quantized(format),
              "{} is {} but {} values carry no scale", field, name_of(scale_names(), scale),
              name_of(format_names(), format));
  ASSAY_CHECK(scale != ASSAY_SCALE_NONE || format != ASSAY_INT8, "{} is none but int8 codes need a scale",
              field);
}

void check_mathematics(const Problem& p) {
  check_name(op_names(), p.op, "op");
  check_name(mask_names(), p.mask, "mask");
  check_name(alibi_names(), p.alibi, "alibi");
  ASSAY_CHECK(p.heads_q > 0 && p.heads_kv > 0, "heads are {} over {}, both must be positive", p.heads_q,
              p.heads_kv);
  ASSAY_CHECK(p.heads_q % p.heads_kv == 0, "heads_q {} is not a multiple of heads_kv {}", p.heads_q,
              p.heads_kv);
  ASSAY_CHECK(p.head_dim_qk > 0 && p.head_dim_v > 0, "head dims are {} and {}, both must be positive",
              p.head_dim_qk, p.head_dim_v);
  ASSAY_CHECK(p.window_left >= -1 && p.window_right >= -1, "window is ({}, {}), accepted are -1 and up",
              p.window_left, p.window_right);
  ASSAY_CHECK(p.chunk >= 0, "chunk is {}, accepted are 0 (off) and up", p.chunk);
  ASSAY_CHECK(std::isfinite(p.softcap) && p.softcap >= 0, "softcap is {}, accepted are 0 (off) and up",
              p.softcap);
  ASSAY_CHECK(std::isfinite(p.softmax_scale) && p.softmax_scale > 0,
              "softmax_scale is {}, it must be positive and concrete", p.softmax_scale);
}

void check_requests(const Problem& p) {
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const Request& request = p.requests[r];
    ASSAY_CHECK(request.q_len >= 0 && request.kv_len >= 0, "request {} has q_len {} and kv_len {}", r,
                request.q_len, request.kv_len);
    ASSAY_CHECK(request.shared_with >= -1 && request.shared_with < static_cast<int64_t>(r),
                "request {} shares with {}, it must be an earlier request or -1", r, request.shared_with);
    const int32_t most =
        request.shared_with < 0 ? 0 : std::min(request.kv_len, p.requests[request.shared_with].kv_len);
    ASSAY_CHECK(request.shared_tokens >= 0 && request.shared_tokens <= most,
                "request {} shares {} tokens, at most {} are common", r, request.shared_tokens, most);
  }
  ASSAY_CHECK(p.total_q() <= kMaxTokens && p.total_kv() <= kMaxTokens,
              "{} rows and {} keys, offsets hold at most {}", p.total_q(), p.total_kv(), kMaxTokens);
  const auto entries = static_cast<int64_t>(p.tree_mask.size());
  const int64_t wanted = p.mask == ASSAY_MASK_TREE ? p.tree_indptr().back() : 0;
  ASSAY_CHECK(entries == wanted, "tree_mask has {} entries, needed are {}", entries, wanted);
  for (uint8_t bit : p.tree_mask) ASSAY_CHECK(bit <= 1, "tree_mask holds {}, accepted are 0 and 1", bit);
}

void check_positions(const Problem& p) {
  ASSAY_CHECK((p.first_key.empty() && p.positions.empty()) || op_of(p).attends_rows, "{} has no mask",
              op_of(p).name);
  ASSAY_CHECK(p.first_key.empty() || p.first_key.size() == p.requests.size(),
              "first keys of {} requests for {}", p.first_key.size(), p.requests.size());
  for (size_t r = 0; r < p.first_key.size(); ++r)
    ASSAY_CHECK(p.first_key[r] >= 0 && int64_t{p.first_key[r]} + p.requests[r].kv_len <= kMaxTokens,
                "request {}: {} keys from position {} on", r, p.requests[r].kv_len, p.first_key[r]);
  ASSAY_CHECK(p.encoder_len.empty() || find_operand(op_of(p), Operand::kEncoderLen) != nullptr ||
                  p.op == ASSAY_OP_PAGED,  // what a step is compared with
              "{} knows no encoder", op_of(p).name);
  ASSAY_CHECK(
      p.encoder_len.empty() || (p.encoder_len.size() == p.requests.size() && p.table != ASSAY_TABLE_CSR),
      "encoders of {} requests for {}, in a table of rows", p.encoder_len.size(), p.requests.size());
  ASSAY_CHECK(!p.full_pool || find_operand(op_of(p), Operand::kSlotMap) != nullptr || p.op == ASSAY_OP_PAGED,
              "{} knows no other pool", op_of(p).name);
  for (const int32_t tokens : p.encoder_len)
    ASSAY_CHECK(tokens >= 0 && tokens <= kMaxTokens - p.max_kv_len(), "an encoder of {} tokens", tokens);
  ASSAY_CHECK(p.positions.empty() || p.positions.size() == p.requests.size(),
              "positions of {} requests for {}", p.positions.size(), p.requests.size());
  for (size_t r = 0; r < p.positions.size(); ++r) {
    ASSAY_CHECK(p.positions[r].size() == static_cast<size_t>(p.requests[r].q_len),
                "request {}: {} positions of {} rows", r, p.positions[r].size(), p.requests[r].q_len);
    ASSAY_CHECK(p.mask != ASSAY_MASK_TREE || p.chunk == 0, "a tree by positions has no chunks");
    // The drafts of a tree stand behind the prefix, or the prefix would be cut in its midst.
    const int64_t least = p.mask != ASSAY_MASK_TREE ? 0
                                                    : (p.first_key.empty() ? int64_t{0} : p.first_key[r]) +
                                                          p.first_draft(p.requests[r]) + p.drafted;
    for (const int32_t position : p.positions[r])
      ASSAY_CHECK(position >= least, "request {}: a row at position {}, the least is {}", r, position, least);
  }
}

void check_formats(const Problem& p) {
  check_format(p.q_format, "q_format");
  check_format(p.k_format, "k_format");
  check_format(p.v_format, "v_format");
  ASSAY_CHECK(p.o_format == ASSAY_FP32 || format_is_float16(p.o_format),
              "o_format is {}, accepted are fp32, bf16, fp16", name_of(format_names(), p.o_format));
  check_scale(p.q_format, p.q_scale, "q_scale");
  check_scale(p.k_format, p.k_scale, "k_scale");
  check_scale(p.v_format, p.v_scale, "v_scale");
}

void check_layout(const Problem& p) {
  check_name(layout_names(), p.layout, "layout");
  check_name(table_names(), p.table, "table");
  ASSAY_CHECK(p.table != ASSAY_TABLE_NONE,
              "a paged problem needs a page table, accepted are block, csr, token");
  ASSAY_CHECK(p.page_size > 0, "page_size is {}", p.page_size);
  ASSAY_CHECK(p.num_blocks >= p.min_blocks && p.min_blocks >= 0, "{} blocks, at least {} wanted",
              p.num_blocks, p.min_blocks);
  const int32_t x = pack_width(p.k_format);
  if (p.layout == ASSAY_LAYOUT_X || p.layout == ASSAY_LAYOUT_SHUFFLED)
    ASSAY_CHECK(p.head_dim_qk % x == 0, "head_dim_qk {} is not a multiple of x = {} of layout {}",
                p.head_dim_qk, x, name_of(layout_names(), p.layout));
  if (p.layout == ASSAY_LAYOUT_SHUFFLED)
    ASSAY_CHECK(p.page_size % x == 0, "page_size {} is not a multiple of x = {} of layout shuffled",
                p.page_size, x);
  if (p.layout == ASSAY_LAYOUT_MLA) {
    ASSAY_CHECK(p.heads_kv == 1, "layout mla has one KV head, heads_kv is {}", p.heads_kv);
    ASSAY_CHECK(p.head_dim_v <= p.head_dim_qk,
                "layout mla takes V from K's row: head_dim_v {} > head_dim_qk {}", p.head_dim_v,
                p.head_dim_qk);
    ASSAY_CHECK(p.k_format == p.v_format && p.k_scale == p.v_scale,
                "layout mla has one latent cache: K is {}:{}, V is {}:{}",
                name_of(format_names(), p.k_format), name_of(scale_names(), p.k_scale),
                name_of(format_names(), p.v_format), name_of(scale_names(), p.v_scale));
    ASSAY_CHECK(p.storage == Storage::kSplit, "layout mla has no V plane to stack or interleave");
  } else if (p.storage != Storage::kSplit) {
    ASSAY_CHECK(p.head_dim_qk == p.head_dim_v && (p.k_format == p.v_format || p.head_dim_qk % 4 == 0),
                "K and V share one allocation and must have one head dim, of two formats a multiple of 4");
  }
  ASSAY_CHECK(p.layers == 1 || (p.layers > 1 && p.storage == Storage::kInterleaved &&
                                (p.layout == ASSAY_LAYOUT_NHD || p.layout == ASSAY_LAYOUT_HND)),
              "{} layers between each other, of an interleaved cache by pages or heads", p.layers);
  ASSAY_CHECK(p.layer >= 0 && p.layer < p.layers, "layer {} of {}", p.layer, p.layers);
  if (p.swa_index)
    ASSAY_CHECK(p.window_left >= 0 || p.chunk > 0,
                "swa_index needs a window or a chunk, else every page is kept");
}

// What its op makes of the fields; an op that sees a whole context gives all of them their meaning.
void check_op(const Problem& p) {
  const Op& op = op_of(p);
  ASSAY_CHECK(p.only_keys.empty() || op.whole_context, "only_keys in {}", op.name);
  if (!op.whole_context) {
    const bool codes = p.source_format == ASSAY_FORMAT_NONE && find_operand(op, Operand::kDenseKScale);
    ASSAY_CHECK(codes || p.source_format == ASSAY_FP32 || format_is_float16(p.source_format),
                "source_format is {}, accepted are fp32, bf16, fp16",
                name_of(format_names(), p.source_format));
    ASSAY_CHECK(!p.split_latent || (takes(op, "sources") && p.head_dim_v < p.head_dim_qk &&
                                    (op.attends_rows || p.layout == ASSAY_LAYOUT_MLA)),
                "{} has no row of two parts", op.name);
    ASSAY_CHECK(p.states >= 1, "{} states, at least 1 is needed", p.states);
    ASSAY_CHECK(p.padded_rows == 0 || (takes(op, "pad") && p.padded_rows > 0), "{} padded rows in {}",
                p.padded_rows, op.name);
    ASSAY_CHECK(!p.swa_index && p.relations == 0, "{} has neither a window nor relations", op.name);
    ASSAY_CHECK(p.mask != ASSAY_MASK_TREE || op.attends_rows || is_about_trees(op), "{} has no tree",
                op.name);
  }
  switch (row_rule(op, p.mask)) {
    case RowRule::kAny:
      break;
    case RowRule::kOneAtMost:
      ASSAY_CHECK(p.max_q_len() <= 1, "{} of {} rows of a request, accepted are 0 and 1", op.name,
                  p.max_q_len());
      break;
    case RowRule::kWithinCache:
      for (size_t r = 0; r < p.requests.size(); ++r)
        ASSAY_CHECK(p.requests[r].q_len <= p.requests[r].kv_len, "request {}: {} rows of {} cached tokens", r,
                    p.requests[r].q_len, p.requests[r].kv_len);
  }
  if (op.has_cache && !op.shares_pages)
    for (size_t r = 0; r < p.requests.size(); ++r)
      ASSAY_CHECK(p.requests[r].shared_tokens == 0,
                  "request {} shares pages: its slots would be written twice", r);
  if (op.check != nullptr) op.check(p);
}

// A block may stand for one logical page only, except the poison block of a hybrid cache, which no
// resident page may use.
void check_pages(const Problem& p) {
  ASSAY_CHECK(p.pages.size() == p.requests.size(), "pages of {} requests for {} requests", p.pages.size(),
              p.requests.size());
  struct Page {
    int owner = -1;
    int32_t page = -1;
    bool operator==(const Page&) const = default;
  };
  std::vector<Page> seen(p.num_blocks);
  std::vector<std::vector<int32_t>> placed(p.requests.size());
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const int64_t wanted = (int64_t{p.requests[r].kv_len} + p.page_size - 1) / p.page_size;
    ASSAY_CHECK(static_cast<int64_t>(p.pages[r].size()) == wanted, "request {} has {} pages, {} keys need {}",
                r, p.pages[r].size(), p.requests[r].kv_len, wanted);
    placed[r].assign(wanted, -1);
    const PageRange keep = resident_pages(p, static_cast<int>(r));
    for (int32_t page = 0; page < wanted; ++page) {
      const int32_t block = p.pages[r][page];
      ASSAY_CHECK(block >= 0 && block < p.num_blocks, "request {} page {} is block {} of {}", r, page, block,
                  p.num_blocks);
      if (page < keep.first || page >= keep.last) continue;
      const Page self{page_owner(p, static_cast<int>(r), page), page};
      ASSAY_CHECK(seen[block] == Page{} || seen[block] == self,
                  "request {} page {} is block {}, which holds page {} of request {}", r, page, block,
                  seen[block].page, seen[block].owner);
      seen[block] = self;
      int32_t& home = placed[self.owner][page];
      ASSAY_CHECK(home < 0 || home == block, "page {} of request {} is block {} and, shared by {}, block {}",
                  page, self.owner, home, r, block);
      home = block;
    }
  }
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const PageRange keep = resident_pages(p, static_cast<int>(r));
    for (int32_t page = 0; page < static_cast<int32_t>(p.pages[r].size()); ++page)
      if (page < keep.first || page >= keep.last)
        ASSAY_CHECK(seen[p.pages[r][page]] == Page{},
                    "request {} page {} is outside the window but its block {} holds page {} of request {}",
                    r, page, p.pages[r][page], seen[p.pages[r][page]].page, seen[p.pages[r][page]].owner);
  }
}

}  // namespace

void check_problem(const Problem& p) {
  check_mathematics(p);
  check_requests(p);
  check_positions(p);
  check_formats(p);
  check_op(p);
  if (op_of(p).has_cache) {
    check_layout(p);
    check_pages(p);
  } else {
    ASSAY_CHECK(!p.swa_index, "swa_index is a property of a paged cache");
    ASSAY_CHECK(p.pages.empty(), "a {} problem has no pages", op_of(p).name);
  }
}

}  // namespace assay
