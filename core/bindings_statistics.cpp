#include "bindings_statistics.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "bindings_results.h"
#include "measure/detours.h"
#include "measure/statistics.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a is nanobind's own way

namespace linkgauge {
namespace {

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const double> span_of(const Doubles& values) { return {values.data(), values.shape(0)}; }

nb::dict summaries_to_python(const std::vector<Summary>& rows) {
  nb::dict fields;
  fields["count_all"] = column<std::int64_t>(rows, &Summary::count_all);
  fields["warmup_cut"] = column<std::int64_t>(rows, &Summary::warmup_cut);
  fields["count"] = column<std::int64_t>(rows, &Summary::count);
  fields["median"] = column<double>(rows, &Summary::median);
  fields["interval_low"] = column<double>(rows, [](const Summary& row) { return row.interval.low; });
  fields["interval_high"] = column<double>(rows, [](const Summary& row) { return row.interval.high; });
  fields["mean"] = column<double>(rows, &Summary::mean);
  fields["quartile_1"] = column<double>(rows, &Summary::quartile_1);
  fields["quartile_3"] = column<double>(rows, &Summary::quartile_3);
  fields["p5"] = column<double>(rows, &Summary::p5);
  fields["p95"] = column<double>(rows, &Summary::p95);
  fields["p99"] = column<double>(rows, &Summary::p99);
  fields["min"] = column<double>(rows, &Summary::min);
  fields["max"] = column<double>(rows, &Summary::max);
  fields["effective_size"] = column<double>(rows, &Summary::effective_size);
  return fields;
}

nb::dict summaries_of(const Doubles& values, const Offsets& offsets, const Doubles& ticks, int threads) {
  const std::size_t marks = offsets.shape(0);
  bool good = marks >= 1 && offsets.data()[0] >= 0 && ticks.shape(0) == marks - 1 &&
              offsets.data()[marks - 1] <= static_cast<std::int64_t>(values.shape(0));
  for (std::size_t i = 1; i < marks; ++i) good = good && offsets.data()[i - 1] <= offsets.data()[i];
  if (!good) {
    throw CallerError("offsets must rise from 0 to the number of values, one more of them than ticks");
  }
  std::vector<Summary> summaries(marks - 1);
  {
    const nb::gil_scoped_release release;
    const int used = threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency());
    summarize_groups(span_of(values), {offsets.data(), marks}, span_of(ticks), summaries, used);
  }
  return summaries_to_python(summaries);
}

}  // namespace

void bind_statistics(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  module.def(
      "median", [](const Doubles& series) { return median(span_of(series)); }, "series"_a, Release());
  module.def(
      "warmup_cut", [](const Doubles& series) { return warmup_cut(span_of(series)); }, "series"_a, Release());
  module.def(
      "effective_size", [](const Doubles& series) { return effective_size(span_of(series)); }, "series"_a, Release());
  module.def(
      "median_interval",
      [](const Doubles& series, double tick) {
        const Interval interval = median_interval(span_of(series), tick);
        return std::pair(interval.low, interval.high);
      },
      "series"_a, "tick"_a = 0.0, Release());
  module.def(
      "find_detours",
      [](std::int64_t span_ns, std::int64_t least_ns) {
        Detours found;
        {
          const nb::gil_scoped_release release;
          found = find_detours(span_ns, least_ns);
        }
        const auto itself = [](std::int64_t value) { return value; };
        return nb::make_tuple(column<std::int64_t>(found.start_ns, itself), column<std::int64_t>(found.ns, itself),
                              found.span_ns, found.quantum_ns);
      },
      "span_ns"_a, "least_ns"_a);
  module.def("summarize_groups", summaries_of, "values"_a, "offsets"_a, "ticks"_a, "threads"_a = 0);
}

}  // namespace linkgauge
