// SPDX-License-Identifier: Apache-2.0
// What a kernel that follows given rules would output: the reference of a hypothesis. It repeats the declared
// order of tiles, splits and roundings of P in double precision, so that a true hypothesis fits to fp32
// accuracy. Written apart from the judge's reference and from any planted fault on purpose.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/explain/kv_store.hpp"
#include "harness/explain/rules.hpp"
#include "reference/attention/attention.hpp"

namespace assay {

struct Layout;

struct Prediction {
  std::vector<double> o;  // head_dim_v, rounded to the output format
  double lse = 0;
  // Standard deviations of what the rules say is random (Rules::weight_noise); empty: nothing.
  std::vector<double> o_noise;
  double lse_noise = 0;
  bool nan_scores = false;  // some score was NaN
};

class Predictor {
 public:
  // Operands with whatever poison they hold; both must outlive the predictor.
  Predictor(const Problem&, const HostOperands&, const assay_arithmetic& declared);

  const Problem& problem() const { return problem_; }
  const assay_arithmetic& declared() const { return declared_; }
  const OperandReader& reader() const { return reader_; }
  Rules right() const;  // no hook set, but for those of the base
  // Hypotheses that are proposed from now on change these rules instead of the right ones; null: those.
  void stand_on(const Rules* base) { base_ = base; }
  // A right kernel takes keys in this order, where calls showed what nobody declares.
  void work_in(const Layout& order);

  Prediction predict(const Rules&, const Cell&);

  // What an element holds that is never written, under the poison of these operands.
  double unwritten_o() const;
  double unwritten_lse() const;

  // What a right kernel gives the visible keys of a cell: positions, probabilities; for attribution.
  struct Weights {
    std::vector<int32_t> positions;
    std::vector<double> p, scores;
    double lse = 0;
  };
  Weights weights(const Cell&);
  KvStore& store(int32_t request, int32_t kv_head);

 private:
  struct Altered;
  Predictor& in_world(const World&);
  struct Scored {  // a term with its score
    Term term;
    double x;
    const double* v;  // nullptr: zeros
    int32_t tile, part, state;
    double exponent = 1;  // factor of its weight's exponent
    bool in_maximum = true;
  };
  struct Summed {
    std::vector<SplitPart> parts;
    LseParts lse{};  // of one part
    bool nan_scores = false, merged = false;
  };
  struct Dots {  // of one query with the rows of one store
    std::vector<double> value;
    std::vector<char> known;
  };
  struct Query {
    std::vector<double> q;
    std::map<const KvStore*, Dots> dots;
  };
  Query& query_at(const Cell&);
  double dot(const Rules&, const Scene&, const Query&, Dots&, const Term&);
  const std::vector<int32_t>& seen_by(const Cell&);  // keys of its request that a row sees
  std::vector<Scored> score_all(const Rules&, Scene&, const Cell& asked);
  Prediction one_pass_of_two(const Rules&, const Cell& asked);
  Summed sums(const Rules&, Scene&, const Cell& asked, double sink);
  static int32_t count_updates(const assay_arithmetic&, const std::vector<Scored>&, size_t begin, size_t end,
                               double maximum);
  SplitPart run_part(const Rules&, const std::vector<Scored>&, size_t begin, size_t end, double sink,
                     LseParts*);
  // ... of all running states of a part, joined.
  SplitPart run_states(const Rules&, const std::vector<Scored>&, size_t begin, size_t end, double sink,
                       LseParts*);

  const Problem& problem_;
  const Rules* base_ = nullptr;
  std::shared_ptr<const Rules> ordered_;  // right rules in the order that calls showed; null: as declared
  HostOperands operands_;
  const assay_tensors& tensors_;
  OperandReader reader_;
  assay_arithmetic declared_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<KvStore>> stores_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, Query> queries_;
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> seen_;
  std::vector<double> edited_q_, scaled_k_;
  std::map<const World*, std::shared_ptr<Altered>> worlds_;
  std::unordered_map<std::string, Summed> sums_;  // by cell and arithmetic
};

// Where a row stands, counted from the request's first key, as keys are here.
int32_t place_of_row(const Problem&, const Cell&);

}  // namespace assay
