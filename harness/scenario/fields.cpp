// SPDX-License-Identifier: Apache-2.0
// Field table (see fields.hpp): one row per field with everything anybody needs to know about it.
// Values that name an enumerator take their spelling from harness/problem/names.hpp; the few
// enumerations that only the scenario language knows are named in field_names.hpp.
#include "harness/scenario/fields.hpp"

#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/batch_text.hpp"
#include "harness/scenario/field_lists.hpp"
#include "harness/scenario/field_names.hpp"
#include "harness/scenario/field_values.hpp"
#include "harness/scenario/limits.hpp"

namespace assay {
namespace {

const Scenario& defaults() {
  static const Scenario scenario;
  return scenario;
}

Quantization default_q(const Scenario& s) { return op_of(s.op).default_q; }
int32_t default_from(const Scenario& s) { return op_of(s.op).default_source; }
Quantization default_kv(const Scenario& s) {
  return format_is_quantized(s.q.format) ? Quantization{ASSAY_BF16, ASSAY_SCALE_NONE} : s.q;
}
int32_t default_out(const Scenario& s) {
  if (const int32_t own = op_of(s.op).default_out; own != ASSAY_FORMAT_NONE) return own;
  return format_is_quantized(s.q.format) ? static_cast<int32_t>(ASSAY_BF16) : s.q.format;
}

std::string quantization_words(const Quantization& q) {
  std::string text;
  print_quantization(q, text);
  return text;
}
// Empty of no format.
std::string format_word(int32_t format) {
  return format == ASSAY_FORMAT_NONE ? std::string() : std::string(name_of(format_names(), format));
}

// "bf16, in merge_states fp32": what most ops have, and who has another default.
template <class Text>
std::string default_with_exceptions(std::string_view text, std::string_view separator, const Text& of_op) {
  std::string all(text);
  for (const Op* op : all_ops())
    if (const std::string own = of_op(*op); !own.empty() && own != text)
      all += fmt::format("{}in {} {}", separator, op->name, own);
  return all;
}

// Rows of fields that are one enumerator: MEMBER of type TYPE named in NAMES.
#define ASSAY_NAMED_FIELD(TEXT, MEMBER, TYPE, NAMES, MEANING)                                               \
  Field {                                                                                                   \
    TEXT, "NAME", std::string(name_of(NAMES, static_cast<int32_t>(Scenario{}.MEMBER))), MEANING,            \
        accepted(NAMES),                                                                                    \
        [](Slice v, Scenario& s) { s.MEMBER = static_cast<TYPE>(parse_name(v, TEXT, NAMES)); },             \
        [](const Scenario& s, std::string& out) { out += name_of(NAMES, static_cast<int32_t>(s.MEMBER)); }, \
        [](const Scenario& s) { return s.MEMBER == defaults().MEMBER; }                                     \
  }

// Rows of fields that are one count from LOW to HIGH.
#define ASSAY_COUNT_FIELD(TEXT, SYNTAX, MEMBER, LOW, HIGH, DEFAULT, MEANING, ACCEPTED)                  \
  Field {                                                                                               \
    TEXT, SYNTAX, DEFAULT, MEANING, ACCEPTED,                                                           \
        [](Slice v, Scenario& s) { s.MEMBER = static_cast<int32_t>(parse_count(v, TEXT, LOW, HIGH)); }, \
        [](const Scenario& s, std::string& out) { append_count(out, s.MEMBER); },                       \
        [](const Scenario& s) { return s.MEMBER == defaults().MEMBER; }                                 \
  }

std::vector<Field> make_fields() {
  const std::string formats = accepted(operand_formats());
  const std::string scales = accepted(granularities());
  return {
      ASSAY_NAMED_FIELD("op", op, int32_t, op_names(),
                        "What is computed; stands first in the line, without op=."),
      {"h", "Q[/KV]", "32/8", "Query heads and KV heads; one number means both.",
       fmt::format("1 to {}, Q a multiple of KV", kMaxHeads),
       [](Slice v, Scenario& s) { parse_pair(v, "h", kMaxHeads, s.heads_q, s.heads_kv); },
       [](const Scenario& s, std::string& out) { print_pair(s.heads_q, s.heads_kv, out); },
       [](const Scenario& s) { return s.heads_q == 32 && s.heads_kv == 8; }},
      {"d", "QK[/V]", "128", "Head dimension of Q and K, and of V; one number means both.",
       fmt::format("1 to {}", kMaxHeadDim),
       [](Slice v, Scenario& s) { parse_pair(v, "d", kMaxHeadDim, s.head_dim_qk, s.head_dim_v); },
       [](const Scenario& s, std::string& out) { print_pair(s.head_dim_qk, s.head_dim_v, out); },
       [](const Scenario& s) { return s.head_dim_qk == 128 && s.head_dim_v == 128; }},
      {"q", "FORMAT[:SCALE]",
       default_with_exceptions("bf16", ", ", [](const Op& op) { return quantization_words(op.default_q); }),
       "Number format of Q; quantised formats carry scales of the given granularity (tensor unless given).",
       fmt::format("{}; scales {}", formats, scales),
       [](Slice v, Scenario& s) { s.q = parse_quantization(v, "q"); },
       [](const Scenario& s, std::string& out) { print_quantization(s.q, out); },
       [](const Scenario& s) { return s.q == default_q(s); }},
      {"kv", "K[:SCALE][/V[:SCALE]]", "as q, bf16 when q is quantised",
       "Number formats of K and V, as q; V as K unless given.", "as q",
       [](Slice v, Scenario& s) {
         const size_t slash = v.text.find('/');
         s.k = parse_quantization(v.sub(0, slash), "kv");
         s.v = slash == std::string_view::npos ? s.k : parse_quantization(v.sub(slash + 1), "kv");
       },
       [](const Scenario& s, std::string& out) {
         print_quantization(s.k, out);
         if (s.v == s.k) return;
         out += '/';
         print_quantization(s.v, out);
       },
       [](const Scenario& s) { return s.k == default_kv(s) && s.v == s.k; }},
      {"out", "FORMAT",
       default_with_exceptions("as q, bf16 when q is quantised", "; ",
                               [](const Op& op) { return format_word(op.default_out); }),
       "Number format of O, in cache_gather of the gathered rows, in decode_splitkv of the parts.",
       accepted(output_formats()),
       [](Slice v, Scenario& s) { s.o_format = parse_name(v, "out", output_formats()); },
       [](const Scenario& s, std::string& out) { out += name_of(format_names(), s.o_format); },
       [](const Scenario& s) { return s.o_format == default_out(s); }},
      {"from", "FORMAT",
       default_with_exceptions("bf16", ", ", [](const Op& op) { return format_word(op.default_source); }),
       "Number format of what a data op reads: partial O, new rows of K and V, values to quantise; codes: "
       "rows "
       "as the cache stores them, with scales of their own.",
       accepted(source_formats()),
       [](Slice v, Scenario& s) { s.source_format = parse_name(v, "from", source_formats()); },
       [](const Scenario& s, std::string& out) { out += name_of(source_formats(), s.source_format); },
       [](const Scenario& s) { return s.source_format == default_from(s); }},
      {"states", "COUNT", "2",
       "Partial results of every row: those that are merged, in decode_splitkv with part=0 those that are "
       "made.",
       fmt::format("1 to {}", kMaxStates),
       [](Slice v, Scenario& s) {
         s.states = static_cast<int32_t>(parse_integer(v, "states", 1, kMaxStates));
       },
       [](const Scenario& s, std::string& out) { append_integer(out, s.states); },
       [](const Scenario& s) { return s.states == defaults().states; }},
      ASSAY_COUNT_FIELD("part", "TOKENS", part_tokens, 0, kMaxTokens, "256",
                        "Keys of a part; 0 shares out whole pages over `states` parts.",
                        "0 or a token count"),
      ASSAY_COUNT_FIELD("pad", "ROWS", padded_rows, 0, kMaxRequests, "0",
                        "Padded rows of slot -1 among the new ones, of a step behind them, or entries of a "
                        "metadata op's lists "
                        "behind the live ones, as in a batch padded for graph replay.",
                        fmt::format("0 to {}", kMaxRequests)),
      ASSAY_COUNT_FIELD("ranks", "COUNT", ranks, 1, kMaxStates, "1",
                        "Ranks that share keys, in a step heads too.", fmt::format("1 to {}", kMaxStates)),
      ASSAY_COUNT_FIELD("interleave", "TOKENS", interleave, 1, kMaxTokens, "1",
                        "Keys that a rank holds before the next one's turn.", "1 and up"),
      ASSAY_COUNT_FIELD("threshold", "ROWS", threshold, 0, kMaxTokens, "1",
                        "Rows that a request has at most to be a decode: 1 and its drafts.", "0 and up"),
      ASSAY_COUNT_FIELD("budget", "TOKENS", token_budget, 1, kMaxTokens, "32k",
                        "Tokens of context that one step gathers, of all requests together.", "1 and up"),
      ASSAY_COUNT_FIELD("prefix", "TOKENS", prefix_tokens, 0, kMaxTokens, "0",
                        "Tokens that all requests have in common.", "0 or a token count"),
      ASSAY_COUNT_FIELD("workers", "COUNT", workers, 1, kMaxRequests, "132",
                        "Workers that stay, among which a schedule shares the work.",
                        fmt::format("1 to {}", kMaxRequests)),
      {"tile", "ROWS[/KEYS]", "256/128",
       "Rows of a tile of a schedule, and the keys it may be cut at, rounded up to whole pages; one number "
       "means "
       "both.",
       "1 and up", [](Slice v, Scenario& s) { parse_pair(v, "tile", kMaxTokens, s.tile_rows, s.tile_keys); },
       [](const Scenario& s, std::string& out) { print_pair(s.tile_rows, s.tile_keys, out); },
       [](const Scenario& s) {
         return s.tile_rows == defaults().tile_rows && s.tile_keys == defaults().tile_keys;
       }},
      ASSAY_NAMED_FIELD("tree", flat_tree, bool, kTreeNames,
                        "Bits of the drafts alone, or a column for every key of the request."),
      {"bits", "drawn | ROW[/ROW...]", "drawn",
       "Which of its request's drafts each row sees: a row of bits for each of q rows, the same in every "
       "request, as a draft tree of one's own.",
       "drawn, or rows of 0 and 1 joined by /, q rows of q bits, such as 100/110/101",
       [](Slice v, Scenario& s) { s.tree_bits = parse_bits(v, "bits"); },
       [](const Scenario& s, std::string& out) { out += s.tree_bits.empty() ? "drawn" : s.tree_bits; },
       [](const Scenario& s) { return s.tree_bits.empty(); }},
      ASSAY_NAMED_FIELD("write", no_write, bool, kWriteNames,
                        "Whether a step writes its new keys; off: a layer that shares the cache did."),
      ASSAY_COUNT_FIELD("drafted", "COUNT", drafted, 0, kMaxDrafted, "0",
                        "Draft steps before this one, of as many tokens each as are new now (q): they are "
                        "cached between the context and the new ones, and tree bits say who sees them.",
                        fmt::format("0 to {}", kMaxDrafted)),
      ASSAY_NAMED_FIELD(
          "sources", split_latent, bool, kSourcesNames,
          "Tensors that a row of a latent cache comes from, in a step one of Q too: one, or latent "
          "and rope part; of unfolded heads K without a rope part that all have in common."),
      ASSAY_COUNT_FIELD("encoder", "TOKENS", encoder_tokens, 0, kMaxTokens, "0",
                        "Tokens of an encoder that stand before a request's own in its row of the page "
                        "table: so many of the first request, as many at most (drawn) of the others.",
                        "0 or a token count"),
      ASSAY_NAMED_FIELD(
          "pool", full_pool, bool, kPoolNames,
          "Whose slots the page table names: the cache's own, or those of a full pool that a map "
          "leads to them, as in a hybrid cache."),
      ASSAY_NAMED_FIELD("scales", computed_scales, bool, kScalesNames,
                        "Scales per channel: given, or computed from all rows and handed on (calibration)."),
      {"page", "TOKENS", "16", "Tokens per page of the cache.", fmt::format("1 to {}", kMaxPageSize),
       [](Slice v, Scenario& s) {
         s.page_size = static_cast<int32_t>(parse_count(v, "page", 1, kMaxPageSize));
       },
       [](const Scenario& s, std::string& out) { append_integer(out, s.page_size); },
       [](const Scenario& s) { return s.page_size == defaults().page_size; }},
      {"blocks", "auto | COUNT", "auto",
       "Least blocks of the cache: what the requests need and one in eight unused (auto) where that is more; "
       "a "
       "large number puts pages far apart.",
       fmt::format("auto or 1 to {}", kMaxBlocks),
       [](Slice v, Scenario& s) {
         s.min_blocks = v.text == "auto" ? 0 : static_cast<int32_t>(parse_count(v, "blocks", 1, kMaxBlocks));
       },
       [](const Scenario& s, std::string& out) {
         if (s.min_blocks == 0) {
           out += "auto";
         } else {
           append_count(out, s.min_blocks);
         }
       },
       [](const Scenario& s) { return s.min_blocks == 0; }},
      ASSAY_NAMED_FIELD("layout", layout, int32_t, layout_names(), "Order of the axes inside a page."),
      ASSAY_NAMED_FIELD("storage", storage, Storage, kStorageNames,
                        "How the K and the V plane share memory."),
      ASSAY_COUNT_FIELD(
          "layers", "COUNT", layers, 1, kMaxLayers, "1",
          "Layers of a model that lie between each other in a cache of storage=interleaved; the "
          "case is about one of them, drawn from the seed.",
          fmt::format("1 to {}", kMaxLayers)),
      ASSAY_NAMED_FIELD("table", table, int32_t, paged_tables(), "Kind of page table the kernel gets."),
      ASSAY_NAMED_FIELD("index", swa_index, bool, kIndexNames,
                        "swa: hybrid cache that holds only pages a window or chunk can still see."),
      ASSAY_NAMED_FIELD("slots", drawn_slots, bool, kSlotNames,
                        "Order of a page's tokens in its slots; drawn: another one in every block."),
      {"strides", "packed | OPERAND[+OPERAND...]", "packed",
       "Operands that are strided views of something larger; last: dimensions of rows two elements apart.",
       "packed, or any of q, kv, out, table, scales, last joined by +", parse_strides, print_strides,
       [](const Scenario& s) { return s.strided == StridedOperands{}; }},
      ASSAY_NAMED_FIELD("mask", mask, int32_t, mask_names(),
                        "Base visibility; window and chunk come on top."),
      {"window", "LEFT[/RIGHT]", "-1",
       "Keys from p - LEFT to p + RIGHT are visible, inclusive; -1 is unlimited (vLLM's sliding_window W "
       "is window W-1).",
       "-1 or a token count",
       [](Slice v, Scenario& s) {
         const size_t slash = v.text.find('/');
         s.window_left = parse_window_side(v.sub(0, slash), "window");
         s.window_right =
             slash == std::string_view::npos ? -1 : parse_window_side(v.sub(slash + 1), "window");
       },
       [](const Scenario& s, std::string& out) {
         append_count(out, s.window_left);
         if (s.window_right == -1) return;
         out += '/';
         append_count(out, s.window_right);
       },
       [](const Scenario& s) { return s.window_left == -1 && s.window_right == -1; }},
      {"chunk", "TOKENS", "0", "Local attention in chunks of this many tokens, with mask=causal; 0 is off.",
       "0 or a token count",
       [](Slice v, Scenario& s) { s.chunk = static_cast<int32_t>(parse_count(v, "chunk", 0, kMaxTokens)); },
       [](const Scenario& s, std::string& out) { append_count(out, s.chunk); },
       [](const Scenario& s) { return s.chunk == 0; }},
      {"cap", "NUMBER", "0", "Soft cap: logits become cap * tanh(logit / cap); 0 is off.",
       fmt::format("0 or {} to {}", kMinMagnitude, kMaxMagnitude),
       [](Slice v, Scenario& s) { s.softcap = parse_magnitude(v, "cap", true); },
       [](const Scenario& s, std::string& out) { append_real(out, s.softcap); },
       [](const Scenario& s) { return s.softcap == 0; }},
      ASSAY_NAMED_FIELD("alibi", alibi, int32_t, alibi_names(),
                        "Position bias -slope * distance, or with the square root of the distance."),
      ASSAY_NAMED_FIELD("sinks", sinks, bool, kSwitchNames,
                        "Per-head sink logit in the softmax denominator."),
      {"first", "none | drawn | TOKENS", "none",
       "Position of every request's first key: its keys are a stretch of a longer sequence.",
       "none, drawn (a position of its own for every request), or a token count",
       [](Slice v, Scenario& s) { s.first_key = parse_position(v, "first", false); },
       [](const Scenario& s, std::string& out) { print_position(s.first_key, out); },
       [](const Scenario& s) { return s.first_key == kNoPositions; }},
      {"positions", "none | depth | drawn | TOKENS", "none",
       "Where rows stand instead of the last one at the last key.",
       "none, depth (of a draft in its tree), drawn (a position of its own for every row), or the token "
       "count at "
       "which row 0 of every request stands",
       [](Slice v, Scenario& s) { s.positions = parse_position(v, "positions", true); },
       [](const Scenario& s, std::string& out) { print_position(s.positions, out); },
       [](const Scenario& s) { return s.positions == kNoPositions; }},
      {"scale", "auto | NUMBER", "auto",
       "Factor on the dot product; auto is 1/sqrt(head dimension of Q, K), with input=dyadic ln 2.",
       fmt::format("auto or {} to {}", kMinMagnitude, kMaxMagnitude),
       [](Slice v, Scenario& s) {
         s.softmax_scale = v.text == "auto" ? 0 : parse_magnitude(v, "scale", false);
       },
       [](const Scenario& s, std::string& out) {
         if (s.softmax_scale == 0) {
           out += "auto";
         } else {
           append_real(out, s.softmax_scale);
         }
       },
       [](const Scenario& s) { return s.softmax_scale == 0; }},
      {"batch", "GROUPS | uniform(...) | zipf(...) | trace(...)", "required",
       "The requests and their lengths: groups in this order, COUNTqQ[sS][pP] joined by _, of COUNT requests "
       "with "
       "Q new tokens each, S visible ones (the new among them; as many where s is left out) and their first "
       "P "
       "shared. Or lengths drawn from LOW:HIGH, or a step of a trace.",
       "64q1s4k_2q512s2k, uniform(n=64,q=1,s=1k:8k), zipf(n=64,q=1,s=128:32k,a=1.2), "
       "trace(FILE,step=500,tokens=8192,seqs=256,rate=1,draft=0)",
       [](Slice v, Scenario& s) { s.batch = read_batch(v); },
       [](const Scenario& s, std::string& out) { append_batch(out, s.batch); },
       [](const Scenario&) { return false; }},
      ASSAY_NAMED_FIELD("input", recipe, InputRecipe, kRecipeNames,
                        "Recipe of the input values. Subnormal numbers of 8-bit floats: codes (with others "
                        "hardly any). Values "
                        "beyond the largest code where a cache is written under given scales: few; with "
                        "outlier hardly any, often none in a line, unless each channel has its scale; none "
                        "with the known answers of a step. describe counts them."),
      {"relate", "none | RELATION[+RELATION...]", "none",
       "Relations to results of other problems with the same values, checked after the case itself.",
       "none, or any of pages, order, alone, split, chunked, window, sink, strides joined by +", parse_relate,
       print_relate, [](const Scenario& s) { return s.relations == 0; }},
      {"seed", "NUMBER", "0", "Seed of lengths, trees, pages and values.", "0 to 2^64-1",
       [](Slice v, Scenario& s) { s.seed = parse_unsigned(v, "seed"); },
       [](const Scenario& s, std::string& out) { out += fmt::format("{}", s.seed); },
       [](const Scenario& s) { return s.seed == 0; }},
  };
}

#undef ASSAY_NAMED_FIELD
#undef ASSAY_COUNT_FIELD

const std::vector<Field>& table() {
  static const std::vector<Field> rows = [] {
    std::vector<Field> out = make_fields();
    out[0].default_text = "required";
    for (Field& field : out)
      for (const Op* op : all_ops())
        if (takes(*op, field.name)) field.ops |= op_bit(op->id);
    return out;
  }();
  return rows;
}

}  // namespace

std::span<const Field> fields() { return table(); }

const std::vector<std::string_view>& field_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> out;
    for (const Field& field : fields()) out.push_back(field.name);
    return out;
  }();
  return names;
}

int field_index(std::string_view name) {
  for (size_t i = 0; i < table().size(); ++i)
    if (table()[i].name == name) return static_cast<int>(i);
  return -1;
}

void resolve_defaults(Scenario& s, FieldSet given) {
  static const FieldSet kv = field_bit(field_index("kv")), out = field_bit(field_index("out")),
                        q = field_bit(field_index("q")), from = field_bit(field_index("from"));
  if (!(given & q)) s.q = default_q(s);
  if (!(given & from)) s.source_format = default_from(s);
  if (!(given & kv)) s.k = s.v = default_kv(s);
  if (!(given & out)) s.o_format = default_out(s);
}

std::string_view default_source(std::string_view field) {
  if (field == "kv" || field == "out") return "q";
  return field == "q" || field == "from" ? "op" : std::string_view();
}

}  // namespace assay
