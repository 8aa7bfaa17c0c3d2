// SPDX-License-Identifier: Apache-2.0
// Covering arrays: time to build, and the rows reached as a counter, for the sizes of the table in
// cover.md. Arguments: strength, axes, values per axis.
#include <benchmark/benchmark.h>

#include "harness/cover/cover.hpp"

namespace {

void even_levels(benchmark::State& state) {
  assay::CoverProblem problem;
  problem.strength = static_cast<int>(state.range(0));
  problem.levels.assign(state.range(1), static_cast<int>(state.range(2)));
  size_t rows = 0;
  for (auto _ : state) rows = assay::covering_array(problem).size();
  state.counters["rows"] = static_cast<double>(rows);
}
BENCHMARK(even_levels)
    ->ArgNames({"t", "k", "v"})
    ->Args({3, 14, 6})
    ->Args({2, 13, 3})
    ->Args({2, 10, 4})
    ->Args({2, 14, 6})
    ->Args({2, 10, 10})
    ->Args({2, 20, 10})
    ->Args({3, 6, 4})
    ->Args({3, 7, 5})
    ->Args({3, 14, 3})
    ->Args({4, 12, 2})
    ->Args({4, 8, 3})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

// 4^15 3^17 2^29 and 4^1 3^39 2^35 (the usual mixed examples of pairwise tools), 6^4 4^4 2^6 at strength 3.
void mixed_levels(benchmark::State& state) {
  const std::vector<std::vector<std::pair<int, int>>> shapes{
      {{4, 15}, {3, 17}, {2, 29}}, {{4, 1}, {3, 39}, {2, 35}}, {{6, 4}, {4, 4}, {2, 6}}};
  assay::CoverProblem problem;
  problem.strength = static_cast<int>(state.range(1));
  for (const auto& [value_count, axes] : shapes[state.range(0)])
    problem.levels.insert(problem.levels.end(), axes, value_count);
  size_t rows = 0;
  for (auto _ : state) rows = assay::covering_array(problem).size();
  state.counters["rows"] = static_cast<double>(rows);
}
BENCHMARK(mixed_levels)
    ->ArgNames({"shape", "t"})
    ->Args({0, 2})
    ->Args({1, 2})
    ->Args({2, 3})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

void constrained(benchmark::State& state) {
  assay::CoverProblem problem;
  problem.strength = 3;
  problem.levels.assign(12, 4);
  for (int a = 0; a + 1 < 12; a += 2)
    problem.constraints.push_back(
        {{a, a + 1}, [a](std::span<const int> x) { return x[a] != 3 || x[a + 1] == 0; }});
  size_t rows = 0;
  for (auto _ : state) rows = assay::covering_array(problem).size();
  state.counters["rows"] = static_cast<double>(rows);
}
BENCHMARK(constrained)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
