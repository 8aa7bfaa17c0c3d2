// SPDX-License-Identifier: Apache-2.0
// See value_notes.hpp. Conditions are the rules' (rules.cpp, op_rules.cpp, input_rules.cpp,
// relation_rules.cpp).
#include "harness/scenario/value_notes.hpp"

#include <utility>

namespace assay {
namespace {

constexpr ValueNote kInput[] = {
    {"normal", "unit normal Q, K and V"},
    {"peaked", "logits of standard deviation 12: few keys carry the weight"},
    {"ascending", "logits grow with the position: the running maximum moves in every tile"},
    {"boundary", "Q points at keys on both sides of window, chunk, page, tile and request edges"},
    {"cancelling", "neighbours of equal weight and opposite value: the sum is far smaller than its terms"},
    {"outlier", "one channel in 32 is 30 times larger: what 8-bit caches suffer from"},
    {"exact",
     "known answer, equal to the bit where the arithmetic binds: V small even integers, up to 64 keys "
     "round the edges of the mask tie"},
    {"incidence", "known answer: V one-hot, up to 4,096 scattered keys; O tells which keys were attended"},
    {"dyadic",
     "known answer: logits are multiples of ln 2, so weights and rescaling are powers of two; wants "
     "out=bf16 or fp16 and no scale="},
    {"narrow",
     "mean 0.1, deviation 0.2, as some test suites draw: the softmax is flat and hides most faults"},
    {"negative", "all logits near -180: nothing may rest on a logit above a constant"},
    {"patterned",
     "Q, K and V each in a pattern that the seed draws: tokens that come back, few sizes of "
     "weights, one sign, signs by tile, sparse, heavy-tailed, equal queries"},
    {"codes",
     "every kind of code of the storage format (subnormal ones, both zeros, the largest), where an "
     "answer hangs on each"},
    {"steep",
     "the middle third of the keys 120 above the others: beyond an exponential's range for who keeps "
     "a first maximum"},
};
constexpr ValueNote kStrides[] = {
    {"packed", "nothing between rows"},
    {"q", "Q is a slice of the heads of a fused Q, K and V; of data ops what is read in rows"},
    {"kv", "K and V are slices of the heads of something with one more"},
    {"out", "rows of O are padded by one head, the LSE lies as [heads, tokens]"},
    {"table", "rows of the page table are padded; with table=block or token"},
    {"scales",
     "scales per token lie transposed, heads outermost: [heads, tokens] for [tokens, heads], in a "
     "cache [heads, blocks, page] for [blocks, heads, page]; with a token_head scale of q= or kv="},
    {"last", "dimensions of a row lie two elements apart; not with layout=x or shuffled"},
};
constexpr ValueNote kRelate[] = {
    {"none", "no other problem is asked"},
    {"pages", "the pages placed elsewhere; of ops with a cache"},
    {"order", "the requests in another order; with two or more"},
    {"alone", "each request by itself; with two or more"},
    {"split",
     "two calls over half the context each, merged by LSE; without window=, chunk=, alibi=, first=, "
     "positions="},
    {"chunked",
     "the new tokens in several calls; with mask=causal and a request of two or more rows, without "
     "positions="},
    {"window", "a window as long as the longest request; without window=, chunk=, positions="},
    {"sink", "sinks that weigh nothing against none; with sinks=on"},
    {"strides", "strided operands packed, packed ones strided"},
};
constexpr ValueNote kMask[] = {
    {"causal", "keys at or before the row"},
    {"full", "all keys"},
    {"cross", "all keys of an encoder, whose tokens are s"},
    {"tree",
     "all keys before the drafts, of the drafts those that a drawn tree (or bits=) shows; q of the s "
     "tokens are the drafts"},
};
constexpr ValueNote kAlibi[] = {
    {"none", "no bias"},
    {"linear", "minus slope times distance"},
    {"sqrt", "minus slope times the square root of the distance"},
};
constexpr ValueNote kLayout[] = {
    {"nhd", "[blocks, page, heads, dimensions]"},
    {"hnd", "[blocks, heads, page, dimensions]"},
    {"x",
     "K [blocks, heads, dimensions / x, page, x] with x = 16 bytes of elements, V [blocks, heads, "
     "dimensions, page]"},
    {"shuffled", "K as in x, V [blocks, heads, page / x, dimensions, x]"},
    {"mla", "one latent row per token, [blocks, page, dimensions]: V is the front of K; h=Q/1"},
};
constexpr ValueNote kStorage[] = {
    {"split", "an allocation each"},
    {"stacked", "one allocation, all of V behind all of K"},
    {"interleaved", "one allocation, V of a block behind its K"},
};
constexpr ValueNote kTable[] = {
    {"block", "[requests, pages] of blocks"},
    {"csr", "the blocks of all requests in one list, with starts and the length of each last page"},
    {"token", "[requests, tokens] of slots"},
};

// Examples: of groups there is no end.
constexpr ValueNote kBatch[] = {
    {"2q3s40", "two requests of 3 new tokens (q) at the end of 40 visible ones (s)"},
    {"1q9_2q1s4k", "a request of 9 new tokens and no past, then two of one at the end of 4 x 1024"},
    {"8q1s200p64", "eight requests whose first 64 tokens (p) lie in the same pages; of paged and step"},
    {"1q5s3", "more new tokens than visible ones: of mask=causal the first two rows see nothing"},
    {"1q2s0", "new tokens that see none: O is 0, LSE -infinity"},
    {"1q0s20", "a request without new tokens, whose pages are there"},
    {"1q0", "a request with nothing at all"},
    {"uniform(n=8,q=1:16,s=64:4k)", "eight requests, lengths drawn evenly; s is never below its q"},
    {"zipf(n=8,q=1,s=128:32k,a=1.2)", "eight requests, few long and many short: rank^-a"},
};

constexpr std::pair<std::string_view, std::span<const ValueNote>> kNotes[] = {
    {"input", kInput},   {"strides", kStrides}, {"relate", kRelate}, {"mask", kMask},   {"alibi", kAlibi},
    {"layout", kLayout}, {"storage", kStorage}, {"table", kTable},   {"batch", kBatch},
};

}  // namespace

std::span<const ValueNote> value_notes(std::string_view field) {
  for (const auto& [name, notes] : kNotes)
    if (name == field) return notes;
  return {};
}

}  // namespace assay
