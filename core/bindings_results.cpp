#include "bindings_results.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace linkgauge {
namespace {

nb::dict to_python(const VerifyResult& result) {
  nb::dict verify;
  verify["ok"] = result.ok;
  verify["bad_bytes"] = result.bad_bytes;
  verify["first_bad_offset"] = result.first_bad_offset;
  verify["expected"] = result.expected;
  verify["found"] = result.found;
  verify["where"] = result.where;
  return verify;
}

nb::dict to_python(const LoadReport& load) {
  nb::dict fields;
  fields["number"] = load.number;
  fields["start_ns"] = column<std::int64_t>(load.stretches, &Stretch::start_ns);
  fields["ns"] = column<std::int64_t>(load.stretches, &Stretch::ns);
  fields["operations"] = column<std::int64_t>(load.stretches, &Stretch::operations);
  fields["when"] = column<std::uint8_t>(load.stretches, &Stretch::when);
  fields["operations_total"] = load.operations_total;
  fields["verified"] = load.verified;
  fields["verify"] = to_python(load.verify);
  fields["failure"] = load.failure;
  return fields;
}

}  // namespace

nb::dict to_python(const CaseResult& result) {
  const Measurement& measured = result.measurement;
  const std::vector<Sample>& rows = measured.samples;
  nb::dict samples;
  samples["sample"] = column<std::int32_t>(rows, &Sample::number);
  samples["lane"] = column<std::int16_t>(rows, &Sample::lane);
  samples["phase"] = column<std::uint8_t>(rows, &Sample::phase);
  samples["scheduled_ns"] = column<std::int64_t>(rows, &Sample::scheduled_ns);
  samples["start_ns"] = column<std::int64_t>(rows, &Sample::start_ns);
  samples["ns"] = column<std::int64_t>(rows, &Sample::ns);
  samples["iterations"] = column<std::int64_t>(rows, &Sample::iterations);
  samples["clock"] = column<std::uint8_t>(rows, &Sample::clock);

  nb::dict fields;
  fields["samples"] = samples;
  fields["converged"] = measured.converged;
  fields["coarse"] = measured.coarse;
  fields["verified"] = measured.verified;
  fields["verify"] = to_python(measured.verify);
  fields["operations_total"] = measured.operations_total;
  fields["operations_checked"] = measured.operations_checked;
  fields["stopped_by"] = measured.stopped_by;
  fields["batch"] = measured.batch;
  fields["lanes"] = result.lanes;
  nb::list clocks;
  for (const ClockComparison& one : result.clocks) {
    nb::dict clock;
    clock["moment"] = one.moment;
    clock["when_ns"] = one.when_ns;
    clock["offset_ns"] = one.clock.offset_ns;
    clock["uncertainty_ns"] = one.clock.uncertainty_ns;
    clocks.append(clock);
  }
  fields["clocks"] = clocks;
  nb::dict chosen;
  for (const auto& [name, value] : result.chosen) chosen[name.c_str()] = value;
  fields["chosen"] = chosen;
  nb::dict pages;
  if (result.pages.huge_requested > 0) {
    pages["huge_requested"] = result.pages.huge_requested;
    pages["huge_given"] = result.pages.huge_given;
  }
  for (const auto& [node, bytes] : result.pages.node_requested) {
    const std::string number = std::to_string(node);
    pages[std::string("node_requested ").append(number).c_str()] = bytes;
    pages[std::string("node_given ").append(number).c_str()] = result.pages.node_given.at(node);
  }
  fields["host_pages"] = pages;
  nb::dict step_times;
  for (const StepTime& one : result.steps.times) step_times[one.kind] = one.ns;
  fields["step_times"] = step_times;
  nb::list step_spans;
  for (const StepSpan& one : result.steps.spans) step_spans.append(nb::make_tuple(one.kind, one.begin_ns, one.end_ns));
  fields["step_spans"] = step_spans;
  fields["load"] = result.load.number == 0 ? nb::object(nb::none()) : nb::object(to_python(result.load));
  return fields;
}

}  // namespace linkgauge
