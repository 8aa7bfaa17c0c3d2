// SPDX-License-Identifier: Apache-2.0
// See compose.hpp. Steps that only one of the two changes are taken from it; changes of keys, Q and results
// follow each other; masks keep a key where neither hides it. Everything else is taken by one only.
#include "harness/explain/compose.hpp"

#include <cstring>

namespace assay {
namespace {

class Composer {
 public:
  Composer(const Rules& right, const Rules& first, const Rules& second, Rules& both)
      : right_(right), first_(first), second_(second), both_(both) {
    both_ = first_;
  }
  bool fits() const { return fits_; }

  template <class Hook>
  void one(Hook Rules::*hook) {
    if (!(second_.*hook)) return;
    if (first_.*hook) fits_ = false;
    both_.*hook = second_.*hook;
  }
  template <class Value>
  void value(Value Rules::*of) {
    if (second_.*of == right_.*of) return;
    if (first_.*of != right_.*of && first_.*of != second_.*of) fits_ = false;
    both_.*of = second_.*of;
  }
  // One after the other.
  template <class... Of>
  void chain(std::function<void(Of...)> Rules::*hook) {
    if (!(second_.*hook)) return;
    if (!(first_.*hook)) {
      both_.*hook = second_.*hook;
      return;
    }
    both_.*hook = [a = first_.*hook, b = second_.*hook](Of... of) {
      a(of...);
      b(of...);
    };
  }
  void keys() {
    if (first_.edit_terms && second_.edit_terms)
      // No change expects keys in a request that has none.
      both_.edit_terms = [a = first_.edit_terms, b = second_.edit_terms](Scene& s, std::vector<Term>& terms) {
        a(s, terms);
        if (s.kv_len > 0 || terms.empty()) b(s, terms);
      };
    else if (second_.edit_terms)
      both_.edit_terms = second_.edit_terms;
  }
  void arithmetic() {
    const auto same = [](const assay_arithmetic& a, const assay_arithmetic& b) {
      return std::memcmp(&a, &b, sizeof a) == 0;
    };
    if (same(second_.arithmetic, right_.arithmetic)) return;
    if (!same(first_.arithmetic, right_.arithmetic) && !same(first_.arithmetic, second_.arithmetic))
      fits_ = false;
    both_.arithmetic = second_.arithmetic;
  }
  void masks() {
    if (!second_.sees) return;
    if (first_.sees)
      both_.sees = [a = first_.sees, b = second_.sees](const Scene& s, int32_t key) {
        // Where one departs from the rule of the case it decides.
        const bool given = visible(s.problem, s.cell.request, s.cell.row, key), of_a = a(s, key);
        return of_a != given ? of_a : b(s, key);
      };
    else
      both_.sees = second_.sees;
  }

 private:
  const Rules &right_, &first_, &second_;
  Rules& both_;
  bool fits_ = true;
};

}  // namespace

bool compose(const Rules& right, const Rules& first, const Rules& second, Rules* both) {
  Composer c(right, first, second, *both);
  c.arithmetic();
  c.masks();
  c.one(&Rules::world);
  c.one(&Rules::query_of);
  c.one(&Rules::result_of);
  c.one(&Rules::o_of);
  c.one(&Rules::lse_of);
  c.one(&Rules::edit_q_for);
  c.one(&Rules::never_written);
  c.one(&Rules::kv_head_of);
  c.one(&Rules::kv_request_of);
  c.one(&Rules::score);
  c.one(&Rules::sink);
  c.one(&Rules::slope);
  c.one(&Rules::distance);
  c.one(&Rules::o_kept);
  c.one(&Rules::l_kept);
  c.one(&Rules::rescaled_twice);
  c.one(&Rules::kept_dims);
  c.one(&Rules::exp_of);
  c.one(&Rules::exponent_of);
  c.one(&Rules::p_of);
  c.one(&Rules::edit_scores);
  c.one(&Rules::in_maximum);
  c.one(&Rules::merge_weight);
  c.one(&Rules::merge_lse);
  c.one(&Rules::lse);
  c.keys();
  if (first.edit_q && second.edit_q && (first.edit_q_for || second.edit_q_for)) return false;
  c.chain(&Rules::edit_q);
  c.chain(&Rules::edit_parts);
  c.chain(&Rules::finish);
  c.value(&Rules::cut);
  c.value(&Rules::query_at_place);
  c.value(&Rules::values_from_k);
  c.value(&Rules::edit_per_key);
  c.value(&Rules::sink_per_split);
  c.value(&Rules::sink_raw);
  c.value(&Rules::sink_unshifted);
  c.value(&Rules::sink_exponent);
  c.value(&Rules::exponent_factor);
  c.value(&Rules::rescale_exponent);
  c.value(&Rules::round_clamp);
  c.value(&Rules::first_maximum);
  c.value(&Rules::twice_o);
  c.value(&Rules::twice_l);
  c.value(&Rules::stale_maximum);
  c.value(&Rules::passes);
  c.value(&Rules::lazy_below);
  c.value(&Rules::lazy_sum_rescaled);
  c.value(&Rules::lazy_output_rescaled);
  c.value(&Rules::maximum_stays);
  c.value(&Rules::one_part_too);
  c.value(&Rules::exp_everywhere);
  c.value(&Rules::p_of_in_sum);
  c.value(&Rules::skip_below);
  c.value(&Rules::splits_of_longest);
  c.value(&Rules::maximum_lanes);
  c.value(&Rules::maximum_per_tile);
  c.value(&Rules::sum_factor);
  c.value(&Rules::sum_offset);
  c.value(&Rules::sum_offset_of_parts);
  c.value(&Rules::sum_offset_in_lse);
  c.value(&Rules::divide);
  c.value(&Rules::merge_divides);
  c.value(&Rules::accumulator_format);
  c.value(&Rules::accumulator_per_key);
  c.value(&Rules::sum_format);
  c.value(&Rules::sum_per_key);
  c.value(&Rules::sum_of_tile);
  c.value(&Rules::p_step);
  c.value(&Rules::p_mantissa);
  c.value(&Rules::score_format);
  c.value(&Rules::scaled_score_format);
  c.value(&Rules::dot_format);
  c.value(&Rules::dot_step);
  c.value(&Rules::scale_format);
  c.value(&Rules::truncate_output);
  c.value(&Rules::weight_noise);
  return c.fits();
}

}  // namespace assay
