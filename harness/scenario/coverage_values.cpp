// SPDX-License-Identifier: Apache-2.0
// The values of fields that coverage counts, see coverage.hpp.
#include <cmath>

#include "harness/scenario/coverage_tables.hpp"
#include "harness/scenario/score_level.hpp"

namespace assay {
namespace {

bool windowed_right(const Scenario& s) { return s.window_right >= 0; }

bool whole(double x) { return x == std::floor(x); }
constexpr int32_t kFar = 1 << 20;

constexpr CoverValue kValues[] = {
    {"mask", "causal", "mask=causal", [](const Scenario& s) { return s.mask == ASSAY_MASK_CAUSAL; }},
    {"mask", "full", "mask=full", [](const Scenario& s) { return s.mask == ASSAY_MASK_FULL; }},
    {"mask", "cross", "mask=cross", [](const Scenario& s) { return s.mask == ASSAY_MASK_CROSS; }},
    {"mask", "tree", "mask=tree", [](const Scenario& s) { return s.mask == ASSAY_MASK_TREE; }},
    {"window", "none", "", [](const Scenario& s) { return !windowed(s) && !windowed_right(s); }},
    {"window", "left", "window=7", [](const Scenario& s) { return windowed(s) && !windowed_right(s); }},
    {"window", "right", "window=-1/3", [](const Scenario& s) { return !windowed(s) && windowed_right(s); }},
    {"window", "both", "window=7/3", [](const Scenario& s) { return windowed(s) && windowed_right(s); }},
    {"chunk", "off", "", [](const Scenario& s) { return s.chunk == 0; }},
    {"chunk", "on", "chunk=16", [](const Scenario& s) { return s.chunk > 0; }},
    {"cap", "off", "", [](const Scenario& s) { return s.softcap == 0; }},
    {"cap", "whole", "cap=30", [](const Scenario& s) { return s.softcap >= 1 && whole(s.softcap); }},
    {"cap", "fraction", "cap=14.4", [](const Scenario& s) { return s.softcap > 1 && !whole(s.softcap); }},
    {"cap", "below 1", "cap=0.3", [](const Scenario& s) { return s.softcap > 0 && s.softcap < 1; }},
    {"alibi", "none", "", [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_NONE; }},
    {"alibi", "linear", "alibi=linear", [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_LINEAR; }},
    {"alibi", "sqrt", "alibi=sqrt", [](const Scenario& s) { return s.alibi == ASSAY_ALIBI_SQRT; }},
    {"sinks", "off", "", [](const Scenario& s) { return !s.sinks; }},
    {"sinks", "on", "sinks=on", [](const Scenario& s) { return s.sinks; }},
    {"first", "none", "", [](const Scenario& s) { return s.first_key == kNoPositions; }},
    {"first", "to 1m", "first=drawn",
     [](const Scenario& s) { return s.first_key != kNoPositions && s.first_key <= kFar; }},
    {"first", "beyond 1m", "first=3000001", [](const Scenario& s) { return s.first_key > kFar; }},
    {"q", "bf16", "q=bf16", [](const Scenario& s) { return s.q.format == ASSAY_BF16; }},
    {"q", "fp16", "q=fp16", [](const Scenario& s) { return s.q.format == ASSAY_FP16; }},
    {"q", "fp32", "q=fp32", [](const Scenario& s) { return s.q.format == ASSAY_FP32; }},
    {"q", "fp8", "q=fp8_e4m3",
     [](const Scenario& s) { return s.q.format == ASSAY_FP8_E4M3 || s.q.format == ASSAY_FP8_E4M3FNUZ; }},
    {"q", "int8", "q=int8:token_head", [](const Scenario& s) { return s.q.format == ASSAY_INT8; }},
    {"k", "as q", "", [](const Scenario& s) { return s.k.format == s.q.format; }},
    {"k", "fp8_e4m3", "kv=fp8_e4m3", [](const Scenario& s) { return s.k.format == ASSAY_FP8_E4M3; }},
    {"k", "fp8_e5m2", "kv=fp8_e5m2", [](const Scenario& s) { return s.k.format == ASSAY_FP8_E5M2; }},
    {"k", "fp8_e4m3fnuz", "kv=fp8_e4m3fnuz",
     [](const Scenario& s) { return s.k.format == ASSAY_FP8_E4M3FNUZ; }},
    {"k", "int8", "kv=int8", [](const Scenario& s) { return s.k.format == ASSAY_INT8; }},
    {"k scale", "head", "kv=fp8_e4m3:head", [](const Scenario& s) { return s.k.scale == ASSAY_SCALE_HEAD; }},
    {"k scale", "request_head", "kv=fp8_e4m3:request_head",
     [](const Scenario& s) { return s.k.scale == ASSAY_SCALE_REQUEST_HEAD; }},
    {"k scale", "token_head", "kv=int8:token_head",
     [](const Scenario& s) { return s.k.scale == ASSAY_SCALE_TOKEN_HEAD; }},
    {"v scale", "channel", "kv=int8:token_head/int8:channel",
     [](const Scenario& s) { return s.v.scale == ASSAY_SCALE_CHANNEL; }},
    {"out", "bf16", "out=bf16", [](const Scenario& s) { return s.o_format == ASSAY_BF16; }},
    {"out", "fp16", "out=fp16", [](const Scenario& s) { return s.o_format == ASSAY_FP16; }},
    {"out", "fp32", "out=fp32", [](const Scenario& s) { return s.o_format == ASSAY_FP32; }},
    {"d", "to 64", "d=64", [](const Scenario& s) { return s.head_dim_qk <= 64 && s.head_dim_qk % 16 == 0; }},
    {"d", "no multiple of 16", "d=40", [](const Scenario& s) { return s.head_dim_qk % 16 != 0; }},
    {"d", "65 to 128", "d=128",
     [](const Scenario& s) { return s.head_dim_qk > 64 && s.head_dim_qk <= 128 && s.head_dim_qk % 16 == 0; }},
    {"d", "beyond 128", "d=256", [](const Scenario& s) { return s.head_dim_qk > 128; }},
    {"scale", "power of two", "scale=0.125", [](const Scenario& s) { return !scale_is_inexact(s); }},
    {"scale", "inexact", "scale=0.11", scale_is_inexact},
    {"group", "1", "h=2", [](const Scenario& s) { return s.heads_q == s.heads_kv; }},
    {"group", "2 to 8", "h=4/2",
     [](const Scenario& s) { return s.heads_q > s.heads_kv && s.heads_q <= 8 * s.heads_kv; }},
    {"group", "beyond 8", "h=16/1", [](const Scenario& s) { return s.heads_q > 8 * s.heads_kv; }},
    {"strides", "q", "strides=q", [](const Scenario& s) { return s.strided.q; }},
    {"strides", "kv", "strides=kv", [](const Scenario& s) { return s.strided.kv; }},
    {"strides", "out", "strides=out", [](const Scenario& s) { return s.strided.out; }},
    {"strides", "last", "strides=last", [](const Scenario& s) { return s.strided.last; }},
    {"page", "1", "page=1", [](const Scenario& s) { return s.page_size == 1; }},
    {"page", "2 to 16", "page=16", [](const Scenario& s) { return s.page_size > 1 && s.page_size <= 16; }},
    {"page", "17 to 128", "page=64",
     [](const Scenario& s) { return s.page_size > 16 && s.page_size <= 128; }},
    {"page", "beyond 128", "page=256", [](const Scenario& s) { return s.page_size > 128; }},
    {"layout", "nhd", "layout=nhd", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_NHD; }},
    {"layout", "hnd", "layout=hnd", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_HND; }},
    {"layout", "x", "layout=x", [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_X; }},
    {"layout", "shuffled", "layout=shuffled",
     [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_SHUFFLED; }},
    {"layout", "mla", "layout=mla h=4/1 d=576/512",
     [](const Scenario& s) { return s.layout == ASSAY_LAYOUT_MLA; }},
    {"table", "block", "table=block", [](const Scenario& s) { return s.table == ASSAY_TABLE_BLOCK; }},
    {"table", "csr", "table=csr", [](const Scenario& s) { return s.table == ASSAY_TABLE_CSR; }},
    {"table", "token", "table=token", [](const Scenario& s) { return s.table == ASSAY_TABLE_TOKEN; }},
    {"slots", "drawn", "table=token slots=drawn", [](const Scenario& s) { return s.drawn_slots; }},
    {"storage", "split", "", [](const Scenario& s) { return s.storage == Storage::kSplit; }},
    {"storage", "stacked", "storage=stacked",
     [](const Scenario& s) { return s.storage == Storage::kStacked; }},
    {"storage", "interleaved", "storage=interleaved",
     [](const Scenario& s) { return s.storage == Storage::kInterleaved; }},
};

}  // namespace

std::span<const CoverValue> cover_values() { return kValues; }

}  // namespace assay
