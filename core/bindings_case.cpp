#include "bindings_case.h"

#include <nanobind/ndarray.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.h"
#include "traffic/program.h"

namespace nb = nanobind;

namespace linkgauge {
namespace {

[[noreturn]] void wrong_type(const std::string& key, const char* expected, nb::handle value) {
  const nb::str shown(nb::repr(value));
  throw CallerError("'" + key + "' is " + shown.c_str() + ", expected " + expected);
}

long long integer_from(const std::string& key, nb::handle value) {
  if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr())) wrong_type(key, "a whole number", value);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0) wrong_type(key, "a number of at most 64 bits", value);
  return number;
}

template <typename Value>
Value read(const std::string& key, nb::handle value) {
  if constexpr (std::is_same_v<Value, bool>) {
    if (!PyBool_Check(value.ptr())) wrong_type(key, "True or False", value);
    return value.ptr() == Py_True;
  } else if constexpr (std::is_same_v<Value, std::string>) {
    if (!PyUnicode_Check(value.ptr())) wrong_type(key, "a string", value);
    return nb::borrow<nb::str>(value).c_str();
  } else if constexpr (std::is_same_v<Value, double>) {
    if (!PyFloat_Check(value.ptr()) && (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr()))) {
      wrong_type(key, "a number", value);
    }
    return PyFloat_AsDouble(value.ptr());
  } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
    if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr())) wrong_type(key, "a whole number", value);
    const unsigned long long number = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      wrong_type(key, "a number from 0 to 2^64 - 1", value);
    }
    return number;
  } else if constexpr (std::is_same_v<Value, std::vector<int>>) {
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) wrong_type(key, "a list of whole numbers", value);
    std::vector<int> numbers;
    for (const nb::handle item : value) numbers.push_back(read<int>(key, item));
    return numbers;
  } else {
    const long long number = integer_from(key, value);
    if (!std::in_range<Value>(number)) wrong_type(key, "a smaller number", value);
    return static_cast<Value>(number);
  }
}

template <typename Target>
struct Field {
  std::string_view name;
  void (*read)(Target& target, const std::string& key, nb::handle value);
};

// Reads a dict by a table of fields; `where` is put before a key in messages.
template <typename Target, std::size_t kCount>
void read_fields(const std::array<Field<Target>, kCount>& table, const nb::dict& fields, const std::string& where,
                 Target& target) {
  for (const auto& [key, value] : fields) {
    if (!PyUnicode_Check(key.ptr())) wrong_type(where + "a key", "a string", key);
    const std::string name = nb::borrow<nb::str>(key).c_str();
    const Field<Target>* found = nullptr;
    for (const Field<Target>& field : table) {
      if (field.name == name) found = &field;
    }
    if (found == nullptr) {
      std::string expected;
      for (const Field<Target>& field : table) {
        expected += expected.empty() ? "" : ", ";
        expected += field.name;
      }
      throw CallerError("unknown key '" + where + name + "', expected: " + expected);
    }
    found->read(target, where + name, value);
  }
}

nb::dict dict_from(const std::string& key, nb::handle value) {
  if (!PyDict_Check(value.ptr())) wrong_type(key, "a dict", value);
  return nb::borrow<nb::dict>(value);
}

// A field that is read by its type, and one that is read from a word.
template <auto kMember, typename Target>
void plain(Target& target, const std::string& key, nb::handle value) {
  target.*kMember = read<std::remove_reference_t<decltype(target.*kMember)>>(key, value);
}
template <auto kMember, auto kFrom, typename Target>
void word(Target& target, const std::string& key, nb::handle value) {
  target.*kMember = kFrom(read<std::string>(key, value));
}

constexpr std::array<Field<AllocateOptions>, 3> kOptionFields{
    {{"numa_node", plain<&AllocateOptions::numa_node>},
     {"write_combined", plain<&AllocateOptions::write_combined>},
     {"huge_pages", plain<&AllocateOptions::huge_pages>}}};

constexpr std::array<Field<StopRuleSpec>, 4> kStopFields{
    {{"kind", word<&StopRuleSpec::kind, stop_rule_from>},
     {"samples", plain<&StopRuleSpec::samples>},
     {"relative_half_width", plain<&StopRuleSpec::relative_half_width>},
     {"time_ns", plain<&StopRuleSpec::time_ns>}}};

template <auto kMember>
void options(CaseSpec& spec, const std::string& key, nb::handle value) {
  read_fields(kOptionFields, dict_from(key, value), key + ".", spec.*kMember);
}

void stop(CaseSpec& spec, const std::string& key, nb::handle value) {
  read_fields(kStopFields, dict_from(key, value), key + ".", spec.stop);
}

void loads(CaseSpec& spec, const std::string& key, nb::handle value);

// Whole numbers in rows of `columns`, as numpy has them.
using NumberRows = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename Row, std::size_t kColumns>
std::vector<Row> rows(const std::string& key, nb::handle value, Row (*make)(const std::int64_t* row)) {
  NumberRows numbers;
  if (!nb::try_cast(value, numbers, false) || numbers.shape(1) != kColumns) {
    wrong_type(key, ("an int64 array of " + std::to_string(kColumns) + " columns").c_str(), value);
  }
  std::vector<Row> found;
  found.reserve(numbers.shape(0));
  for (std::size_t i = 0; i < numbers.shape(0); ++i) found.push_back(make(numbers.data() + i * kColumns));
  return found;
}

ProgramStep step_from(const std::int64_t* row) {
  if (row[0] < 0 || row[0] >= kProgramKinds) throw CallerError("no kind of step " + std::to_string(row[0]));
  return {static_cast<ProgramKind>(row[0]), row[1], row[2], row[3], row[4]};
}
ProgramFlow flow_from(const std::int64_t* row) {
  return {static_cast<int>(row[0]),         static_cast<int>(row[1]),         static_cast<std::size_t>(row[2]),
          static_cast<std::size_t>(row[3]), static_cast<std::size_t>(row[4]), static_cast<int>(row[5])};
}
ProgramArrival program_arrival_from(const std::int64_t* row) {
  return {static_cast<std::size_t>(row[0]), static_cast<std::size_t>(row[1]), static_cast<int>(row[2]),
          static_cast<std::uint64_t>(row[3])};
}

ProgramCopied program_copied_from(const std::int64_t* row) {
  return {static_cast<std::size_t>(row[0]), static_cast<std::size_t>(row[1]), static_cast<std::size_t>(row[2])};
}

constexpr std::array<Field<ProgramCollective>, 6> kCollectiveFields{
    {{"pattern", word<&ProgramCollective::pattern, pattern_from>},
     {"size_bytes", plain<&ProgramCollective::size_bytes>},
     {"root", plain<&ProgramCollective::root>},
     {"distribution", plain<&ProgramCollective::distribution>},
     {"ranks", plain<&ProgramCollective::ranks>},
     {"begun", plain<&ProgramCollective::begun>}}};

template <std::size_t kDirection>
void copy_bytes(Program& program, const std::string& key, nb::handle value) {
  program.copy_bytes[kDirection] = read<std::size_t>(key, value);
}

constexpr auto kProgramFields = std::to_array<Field<Program>>({
    {"steps", [](Program& to, const std::string& key,
                 nb::handle value) { to.steps = rows<ProgramStep, 5>(key, value, step_from); }},
    {"flows", [](Program& to, const std::string& key,
                 nb::handle value) { to.flows = rows<ProgramFlow, 6>(key, value, flow_from); }},
    {"arrivals", [](Program& to, const std::string& key,
                    nb::handle value) { to.arrivals = rows<ProgramArrival, 4>(key, value, program_arrival_from); }},
    {"copied", [](Program& to, const std::string& key, nb::handle value) { to.copied = rows<ProgramCopied, 3>(key, value, program_copied_from); }},
    {"collectives",
     [](Program& to, const std::string& key, nb::handle value) {
       if (!PyList_Check(value.ptr())) wrong_type(key, "a list of dicts", value);
       for (const nb::handle item : value) {
         ProgramCollective one;
         read_fields(kCollectiveFields, dict_from(key, item), key + ".", one);
         to.collectives.push_back(std::move(one));
       }
     }},
    {"source_bytes", plain<&Program::source_bytes>},
    {"target_bytes", plain<&Program::target_bytes>},
    {"into_device_bytes", copy_bytes<0>},
    {"out_of_device_bytes", copy_bytes<1>},
    {"within_device_bytes", copy_bytes<2>},
    {"queues", plain<&Program::queues>},
});

void program(CaseSpec& spec, const std::string& key, nb::handle value) {
  auto made = std::make_shared<Program>();
  read_fields(kProgramFields, dict_from(key, value), key + ".", *made);
  spec.program = std::move(made);
}

constexpr auto kCaseFields = std::to_array<Field<CaseSpec>>({
    {"transport", plain<&CaseSpec::transport>},
    {"variant", plain<&CaseSpec::variant>},
    {"pattern", word<&CaseSpec::pattern, pattern_from>},
    {"size_bytes", plain<&CaseSpec::size_bytes>},
    {"source_memory", word<&CaseSpec::source_memory, memory_kind_from>},
    {"target_memory", word<&CaseSpec::target_memory, memory_kind_from>},
    {"source_options", options<&CaseSpec::source_options>},
    {"target_options", options<&CaseSpec::target_options>},
    {"rank_list", plain<&CaseSpec::rank_list>},
    {"groups", plain<&CaseSpec::groups>},
    {"devices", plain<&CaseSpec::devices>},
    {"cadence", word<&CaseSpec::cadence, cadence_from>},
    {"arrival", word<&CaseSpec::arrival, arrival_from>},
    {"skew_ns", plain<&CaseSpec::skew_ns>},
    {"clock", word<&CaseSpec::clock, clock_from>},
    {"window", plain<&CaseSpec::window>},
    {"batch", plain<&CaseSpec::batch>},
    {"root", plain<&CaseSpec::root>},
    {"datatype", word<&CaseSpec::datatype, datatype_from>},
    {"op", word<&CaseSpec::op, op_from>},
    {"in_place", plain<&CaseSpec::in_place>},
    {"distribution", plain<&CaseSpec::distribution>},
    {"path", plain<&CaseSpec::path>},
    {"algorithm", plain<&CaseSpec::algorithm>},
    {"buffer", plain<&CaseSpec::buffer>},
    {"initiator", word<&CaseSpec::initiator, initiator_from>},
    {"host_leg", plain<&CaseSpec::host_leg>},
    {"chunk_bytes", plain<&CaseSpec::chunk_bytes>},
    {"blocks", plain<&CaseSpec::blocks>},
    {"managed", word<&CaseSpec::managed, managed_use_from>},
    {"source_device", plain<&CaseSpec::source_device>},
    {"target_device", plain<&CaseSpec::target_device>},
    {"cpu_node", plain<&CaseSpec::cpu_node>},
    {"cpu_cores", plain<&CaseSpec::cpu_cores>},
    {"via", plain<&CaseSpec::via>},
    {"verify_each", plain<&CaseSpec::verify_each>},
    {"seed", plain<&CaseSpec::seed>},
    {"warmup", plain<&CaseSpec::warmup>},
    {"stop", stop},
    {"collectives", plain<&CaseSpec::collectives>},
    {"copies", plain<&CaseSpec::copies>},
    {"program", program},
    {"loads", loads},
});

constexpr std::array<Field<Pace>, 3> kPaceFields{
    {{"burst", plain<&Pace::burst>}, {"every_ns", plain<&Pace::every_ns>}, {"duty", plain<&Pace::duty>}}};

// Each as {"case": {...}, "pace": {...}}.
void loads(CaseSpec& spec, const std::string& key, nb::handle value) {
  if (!PyList_Check(value.ptr())) wrong_type(key, "a list of dicts", value);
  for (const nb::handle item : value) {
    const nb::dict fields = dict_from(key, item);
    if (fields.size() != 2 || !fields.contains("case") || !fields.contains("pace")) {
      wrong_type(key, "dicts of a 'case' and a 'pace'", item);
    }
    Load load{case_from(dict_from(key + ".case", fields["case"])), {}};
    read_fields(kPaceFields, dict_from(key + ".pace", fields["pace"]), key + ".pace.", load.pace);
    spec.loads.push_back(std::move(load));
  }
}

constexpr std::array<Field<Fault>, 5> kFaultFields{{{"kind", word<&Fault::kind, fault_kind_from>},
                                                    {"phase", plain<&Fault::phase>},
                                                    {"sample", plain<&Fault::sample>},
                                                    {"rank", plain<&Fault::rank>},
                                                    {"times", plain<&Fault::times>}}};

}  // namespace

CaseSpec case_from(const nb::dict& fields) {
  for (const char* needed : {"transport", "pattern", "size_bytes", "rank_list", "devices"}) {
    if (!fields.contains(needed)) throw CallerError("the case has no '" + std::string(needed) + "'");
  }
  CaseSpec spec;
  read_fields(kCaseFields, fields, "", spec);
  return spec;
}

Fault fault_from(const nb::dict& fields) {
  Fault fault;
  read_fields(kFaultFields, fields, "fault.", fault);
  const bool throws =
      fault.kind == FaultKind::kThrow || fault.kind == FaultKind::kMemory || fault.kind == FaultKind::kCall;
  if (throws && fault.phase == "release") throw CallerError("'fault.kind' cannot be a failure at release");
  std::string expected;
  for (const std::string_view phase : kFaultPhases) {
    if (fault.phase == phase) return fault;
    expected += (expected.empty() ? "" : ", ") + std::string(phase);
  }
  throw CallerError("'fault.phase' is '" + fault.phase + "', expected one of: " + expected);
}

}  // namespace linkgauge
