#include "bindings_case.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/words.h"
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
    const auto name_of = [](const Field<Target>& field) { return field.name; };
    const auto found = std::find_if(table.begin(), table.end(), [&](const auto& field) { return field.name == name; });
    if (found == table.end())
      throw CallerError("unknown key '" + where + name + "', expected: " + listed(table, name_of));
    found->read(target, where + name, value);
  }
}

nb::dict dict_from(const std::string& key, nb::handle value) {
  if (!PyDict_Check(value.ptr())) wrong_type(key, "a dict", value);
  return nb::borrow<nb::dict>(value);
}

void from_python(AllocateOptions& options, const std::string& key, nb::handle value);
void from_python(StopRuleSpec& stop, const std::string& key, nb::handle value);
void from_python(std::shared_ptr<const Program>& program, const std::string& key, nb::handle value);
void from_python(std::vector<Load>& loads, const std::string& key, nb::handle value);
void from_python(std::optional<Pace>& pace, const std::string& key, nb::handle value);

// A field is read by its type: an enumeration by its names, what is no plain value a from_python.
template <auto... kPath>
void plain(auto& target, const std::string& key, nb::handle value) {
  auto& member = (target.*....*kPath);
  using Value = std::remove_reference_t<decltype(member)>;
  if constexpr (std::is_enum_v<Value>) {
    member = from_word<Value>(read<std::string>(key, value));
  } else if constexpr (requires { from_python(member, key, value); }) {
    from_python(member, key, value);
  } else {
    member = read<Value>(key, value);
  }
}

template <typename Part, typename Value>
Part class_of(Value Part::*);

template <auto kMember>
constexpr auto field(std::string_view name) {
  return Field<decltype(class_of(kMember))>{name, plain<kMember>};
}
constexpr auto table(auto... fields) { return std::array{fields...}; }

constexpr auto kOptionFields =
    table(field<&AllocateOptions::numa_node>("numa_node"), field<&AllocateOptions::write_combined>("write_combined"),
          field<&AllocateOptions::huge_pages>("huge_pages"), field<&AllocateOptions::fabric_handle>("fabric_handle"));

constexpr auto kStopFields =
    table(field<&StopRuleSpec::kind>("kind"), field<&StopRuleSpec::samples>("samples"),
          field<&StopRuleSpec::relative_half_width>("relative_half_width"), field<&StopRuleSpec::time_ns>("time_ns"));

void from_python(AllocateOptions& options, const std::string& key, nb::handle value) {
  read_fields(kOptionFields, dict_from(key, value), key + ".", options);
}

void from_python(StopRuleSpec& stop, const std::string& key, nb::handle value) {
  read_fields(kStopFields, dict_from(key, value), key + ".", stop);
}

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

template <typename Number>
Number fitting(std::int64_t value) {
  if (!std::in_range<Number>(value)) throw CallerError("a program's number " + std::to_string(value) + " does not fit");
  return static_cast<Number>(value);
}

ProgramStep step_from(const std::int64_t* row) {
  if (row[0] < 0 || row[0] >= kProgramKinds) throw CallerError("no kind of step " + std::to_string(row[0]));
  return {static_cast<ProgramKind>(row[0]), row[1], row[2], row[3], row[4]};
}
ProgramFlow flow_from(const std::int64_t* row) {
  return {fitting<int>(row[0]),         fitting<int>(row[1]),         fitting<std::size_t>(row[2]),
          fitting<std::size_t>(row[3]), fitting<std::size_t>(row[4]), fitting<int>(row[5])};
}
ProgramArrival program_arrival_from(const std::int64_t* row) {
  return {fitting<std::size_t>(row[0]), fitting<std::size_t>(row[1]), fitting<int>(row[2]),
          fitting<std::uint64_t>(row[3])};
}

ProgramCopied program_copied_from(const std::int64_t* row) {
  return {fitting<std::size_t>(row[0]), fitting<std::size_t>(row[1]), fitting<std::size_t>(row[2])};
}

constexpr auto kCollectiveFields =
    table(field<&ProgramCollective::pattern>("pattern"), field<&ProgramCollective::size_bytes>("size_bytes"),
          field<&ProgramCollective::root>("root"), field<&ProgramCollective::distribution>("distribution"),
          field<&ProgramCollective::ranks>("ranks"), field<&ProgramCollective::begun>("begun"),
          field<&ProgramCollective::in_place>("in_place"));

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

void from_python(std::shared_ptr<const Program>& program, const std::string& key, nb::handle value) {
  auto made = std::make_shared<Program>();
  read_fields(kProgramFields, dict_from(key, value), key + ".", *made);
  program = std::move(made);
}

constexpr auto kPaceFields = table(field<&Pace::burst>("burst"), field<&Pace::every_ns>("every_ns"),
                                   field<&Pace::duty>("duty"), field<&Pace::offset_ns>("offset_ns"));

void from_python(std::optional<Pace>& pace, const std::string& key, nb::handle value) {
  read_fields(kPaceFields, dict_from(key, value), key + ".", pace.emplace());
}

// Each as {"case": {...}, "pace": {...}}.
void from_python(std::vector<Load>& loads, const std::string& key, nb::handle value) {
  if (!PyList_Check(value.ptr())) wrong_type(key, "a list of dicts", value);
  for (const nb::handle item : value) {
    const nb::dict fields = dict_from(key, item);
    if (fields.size() != 2 || !fields.contains("case") || !fields.contains("pace")) {
      wrong_type(key, "dicts of a 'case' and a 'pace'", item);
    }
    Load load{case_from(dict_from(key + ".case", fields["case"])), {}};
    read_fields(kPaceFields, dict_from(key + ".pace", fields["pace"]), key + ".pace.", load.pace);
    loads.push_back(std::move(load));
  }
}

// A field of one of a case's parts.
template <auto kMember, auto... kWithin>
constexpr Field<CaseSpec> of(std::string_view name) {
  return {name, [](CaseSpec& spec, const std::string& key, nb::handle value) {
            const auto parts = std::tie(spec.traffic, spec.places, spec.mechanism, spec.timing, spec.jobs);
            plain<kMember, kWithin...>(std::get<decltype(class_of(kMember))&>(parts), key, value);
          }};
}

constexpr auto kCaseFields = table(
    of<&Mechanism::transport>("transport"), of<&Mechanism::variant>("variant"), of<&Traffic::pattern>("pattern"),
    of<&Traffic::size_bytes>("size_bytes"), of<&Places::source, &End::kind>("source_memory"),
    of<&Places::target, &End::kind>("target_memory"), of<&Places::source, &End::options>("source_options"),
    of<&Places::target, &End::options>("target_options"), of<&Places::rank_list>("rank_list"),
    of<&Places::groups>("groups"), of<&Places::devices>("devices"), of<&Timing::cadence>("cadence"),
    of<&Timing::arrival>("arrival"), of<&Timing::skew_ns>("skew_ns"), of<&Timing::clock>("clock"),
    of<&Traffic::window>("window"), of<&Timing::batch>("batch"), of<&Traffic::root>("root"),
    of<&Traffic::datatype>("datatype"), of<&Traffic::op>("op"), of<&Traffic::in_place>("in_place"),
    of<&Traffic::distribution>("distribution"), of<&Mechanism::path>("path"), of<&Mechanism::algorithm>("algorithm"),
    of<&Mechanism::buffer>("buffer"), of<&Mechanism::initiator>("initiator"), of<&Mechanism::host_leg>("host_leg"),
    of<&Mechanism::chunk_bytes>("chunk_bytes"), of<&Mechanism::blocks>("blocks"), of<&Mechanism::managed>("managed"),
    of<&Places::source_device>("source_device"), of<&Places::target_device>("target_device"),
    of<&Mechanism::cpu_node>("cpu_node"), of<&Mechanism::cpu_cores>("cpu_cores"), of<&Mechanism::via>("via"),
    of<&Timing::verify_each>("verify_each"), of<&Timing::checks>("checks"), of<&Timing::seed>("seed"),
    of<&Timing::warmup>("warmup"), of<&Timing::stop>("stop"), of<&Mechanism::settings>("settings"),
    of<&Mechanism::collectives>("collectives"), of<&Mechanism::copies>("copies"), of<&Traffic::program>("program"),
    of<&Jobs::loads>("loads"), of<&Jobs::lines>("lines"), of<&Jobs::kept>("kept"), of<&Jobs::pace>("pace"));

}  // namespace

CaseSpec case_from(const nb::dict& fields) {
  for (const char* needed : {"transport", "pattern", "size_bytes", "rank_list", "devices"}) {
    if (!fields.contains(needed)) throw CallerError("the case has no '" + std::string(needed) + "'");
  }
  CaseSpec spec;
  read_fields(kCaseFields, fields, "", spec);
  return spec;
}

}  // namespace linkgauge
