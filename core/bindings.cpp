// The one door to Python: linkgauge._core, typed by src/linkgauge/_core.pyi.
//
// Whatever may wait for another rank or take long gives the interpreter lock away meanwhile.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/waiting.h"
#include "base/wire.h"
#include "bindings_case.h"
#include "bindings_results.h"
#include "bindings_statistics.h"
#include "bindings_traffic.h"
#include "device/device_runtime.h"
#include "group/group.h"
#include "measure/clock.h"
#include "mpi/library.h"
#include "mpi/node_link.h"
#include "run/session.h"
#include "transport/nccl/api.h"
#include "transport/nccl/config.h"
#include "transport/net/ofi/api.h"
#include "transport/net/ucx/api.h"
#include "transport/nixl/api.h"
#include "transport/nvshmem/api.h"
#include "transport/transport.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a is nanobind's own way

namespace linkgauge {
namespace {

using HeartbeatWords = nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Bytes from_python(const nb::bytes& bytes) {
  Bytes message(bytes.size());
  if (!message.empty()) std::memcpy(message.data(), bytes.c_str(), message.size());
  return message;
}

nb::list to_python(const std::vector<Bytes>& messages) {
  nb::list list;
  for (const Bytes& message : messages) {
    list.append(nb::bytes(reinterpret_cast<const char*>(message.data()), message.size()));
  }
  return list;
}

// Errors by who must act; tests/measure/test_core_bindings.py holds the table.
void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  const auto raise = [](const char* module, const char* name, const char* text) {
    const nb::object type = nb::module_::import_(module).attr(name);
    PyErr_SetString(type.ptr(), text);
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const CallerError& error) {
    raise("linkgauge.errors", "UsageError", error.what());
  } catch (const RuntimeCallError& error) {
    const nb::object type = nb::module_::import_("linkgauge._core").attr("RuntimeCallError");
    nb::object value = type(error.what());
    value.attr("call") = error.call();
    value.attr("code_name") = error.code_name();
    value.attr("code") = error.code();
    value.attr("device") = error.device();
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const MemoryError& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const PeerError& error) {
    raise("linkgauge._core", "PeerError", error.what());
  } catch (const Unsupported& error) {
    raise("linkgauge._core", "Unsupported", error.what());
  }
}

nb::dict described(const DeviceInfo& info) {
  nb::dict fields;
  fields["ordinal"] = info.ordinal;
  fields["kind"] = std::string(to_string(info.kind));
  fields["name"] = info.name;
  fields["uuid"] = info.uuid;
  fields["serial"] = info.serial;
  fields["pci_address"] = info.pci_address;
  fields["vbios"] = info.vbios;
  fields["numa_node"] = info.numa_node;
  fields["architecture"] = info.architecture;
  fields["multiprocessors"] = info.multiprocessors;
  fields["memory_bytes"] = info.memory_bytes;
  fields["last_level_cache_bytes"] = info.last_level_cache_bytes;
  fields["attributes"] = info.attributes;
  return fields;
}

nb::dict to_python(const ClockFacts& facts) {
  nb::dict fields;
  fields["cost_ns"] = facts.cost_ns;
  fields["resolution_ns"] = facts.resolution_ns;
  return fields;
}

const ClockFacts& host_clock() {
  static const ClockFacts facts = measure_host_clock();
  return facts;
}

std::shared_ptr<DeviceRuntime> open_runtime_from(const std::string& which, const std::vector<int>& devices,
                                                 int host_devices, const std::string& kernel_cache,
                                                 const std::vector<std::string>& library_folders, bool peer_access) {
  const nb::gil_scoped_release release;
  return open_runtime({which, devices, host_devices, kernel_cache, library_folders, peer_access});
}

nb::dict probe(const std::string& which, int host_devices, const std::vector<std::string>& library_folders) {
  nb::list devices;
  nb::dict found;
  found["devices"] = devices;
  found["version"] = "";
  found["reason"] = "";
  try {
    const auto runtime = open_runtime_from(which, {}, host_devices, "", library_folders, true);
    found["version"] = runtime->version();
    for (int device = 0; device < runtime->count(); ++device) {
      nb::dict info = described(runtime->describe(device));
      const MemoryInfo memory = runtime->memory(device);
      info["free_bytes"] = memory.free_bytes;
      info["total_bytes"] = memory.total_bytes;
      devices.append(info);
    }
  } catch (const CallerError&) {
    throw;
  } catch (const Error& error) {
    found["reason"] = error.what();
  }
  return found;
}

// A Python function that C++ calls, and lets go of, from threads that do not hold the interpreter lock.
std::function<void(const std::string&)> failure_listener(const nb::object& function) {
  const std::shared_ptr<nb::object> held(new nb::object(function), [](nb::object* object) {
    const nb::gil_scoped_acquire acquire;
    delete object;
  });
  return [held](const std::string& reason) {
    const nb::gil_scoped_acquire acquire;
    (*held)(reason);
  };
}

// Between nodes collective over MPI's world.
std::shared_ptr<Group> process_group(int rank, const std::vector<int>& node_of_rank, const std::string& segment_path,
                                     const std::shared_ptr<MpiLibrary>& mpi) {
  const nb::gil_scoped_release release;
  ProcessGroupOptions options{rank, node_of_rank, segment_path, mpi ? make_mpi_link(mpi) : nullptr};
  return make_process_group(options);
}

std::shared_ptr<MpiLibrary> open_mpi(const std::string& library_path, const std::string& abi,
                                     const std::map<std::string, std::uint64_t>& handles) {
  return open_mpi_library(library_path, from_word<MpiAbi>(abi), handles);
}

// For the tests, which compare them with the headers of MPI libraries.
nb::dict constants_of_mpi(const std::string& abi) {
  const MpiConstants& constants = mpi_constants(from_word<MpiAbi>(abi));
  nb::dict fields;
  fields["handle_bytes"] = constants.handle_bytes;
  fields["in_place"] = constants.in_place;
  fields["status_ignore"] = constants.status_ignore;
  fields["statuses_ignore"] = constants.statuses_ignore;
  fields["any_source"] = constants.any_source;
  fields["any_tag"] = constants.any_tag;
  fields["undefined"] = constants.undefined;
  fields["max_error_string"] = constants.max_error_string;
  fields["max_library_version_string"] = constants.max_library_version_string;
  return fields;
}

// A session and what of Python it uses.
class PythonSession {
 public:
  PythonSession(std::shared_ptr<DeviceRuntime> runtime, std::shared_ptr<Group> group, std::shared_ptr<MpiLibrary> mpi,
                const nb::object& heartbeat, const std::string& ccl_library,
                const std::vector<std::string>& library_folders, const nb::object& on_failure, int device)
      : heartbeat_(heartbeat) {
    SessionOptions options;
    options.runtime = std::move(runtime);
    options.group = std::move(group);
    options.device = device;
    options.mpi = std::move(mpi);
    options.libraries = {ccl_library, library_folders};
    options.host_clock = host_clock();
    if (!on_failure.is_none()) options.on_failure = failure_listener(on_failure);
    if (!heartbeat.is_none()) {
      HeartbeatWords words;
      if (!nb::try_cast(heartbeat, words, false) || words.shape(0) < 2) {
        throw CallerError("heartbeat must be a writable uint64 array of at least 2 words: count and phase");
      }
      static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));
      options.heartbeat.count = reinterpret_cast<std::atomic<std::uint64_t>*>(words.data());
      options.heartbeat.phase = reinterpret_cast<std::atomic<std::uint64_t>*>(words.data() + 1);
    }
    session_.emplace(std::move(options));
  }

  nb::object measure(const nb::dict& fields) {
    const CaseSpec spec = case_from(fields);
    std::optional<CaseResult> result;
    {
      const nb::gil_scoped_release release;
      result = session().measure(spec);
    }
    return result ? nb::object(to_python(*result)) : nb::none();
  }

  nb::dict event_clock(int device) {
    ClockFacts facts;
    {
      const nb::gil_scoped_release release;
      facts = session().event_clock(device);
    }
    return to_python(facts);
  }

  void set_hook(const std::string& library, const std::string& words) {
    if (library.empty()) return session().set_hook({});
    using Make = CaseHook* (*)(int launch_rank, DeviceRuntime& runtime, const char* words);
    void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // for good: it is called until the end
    const auto make = opened == nullptr ? nullptr : reinterpret_cast<Make>(dlsym(opened, "linkgauge_make_hook"));
    if (make == nullptr) throw CallerError(library + " makes no hook: " + dlerror());
    session().set_hook([&](int launch_rank, DeviceRuntime& runtime) {
      return std::shared_ptr<CaseHook>(make(launch_rank, runtime, words.c_str()));
    });
  }

  void close() {
    const nb::gil_scoped_release release;
    session_.reset();
  }

 private:
  Session& session() {
    if (!session_) throw CallerError("the session is closed");
    return *session_;
  }

  nb::object heartbeat_;
  std::optional<Session> session_;
};

void bind_devices(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<DeviceRuntime>(module, "Runtime")
      .def_prop_ro("name", [](const DeviceRuntime& runtime) { return std::string(runtime.name()); })
      .def_prop_ro("version", &DeviceRuntime::version)
      .def_prop_ro("count", &DeviceRuntime::count)
      .def("describe", [](const DeviceRuntime& runtime, int device) { return described(runtime.describe(device)); })
      .def("memory",
           [](const DeviceRuntime& runtime, int device) {
             const MemoryInfo info = runtime.memory(device);
             return std::pair(info.free_bytes, info.total_bytes);
           })
      .def("peer_access", &DeviceRuntime::peer_access, Release())
      .def("bind_thread", &DeviceRuntime::bind_thread, Release());
  module.def("open_runtime", open_runtime_from, "which"_a, "devices"_a = std::vector<int>{}, "host_devices"_a = 0,
             "kernel_cache"_a = "", "library_folders"_a = std::vector<std::string>{}, "peer_access"_a = true);
  module.def("probe", probe, "which"_a, "host_devices"_a = 0, "library_folders"_a = std::vector<std::string>{});
}

void bind_groups(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Group>(module, "Group")
      .def_prop_ro("rank", &Group::rank)
      .def_prop_ro("size", &Group::size)
      .def_prop_ro("node", &Group::node)
      .def_prop_ro("node_count", &Group::node_count)
      .def_prop_ro("aborted", &Group::aborted)
      .def(
          "barrier", [](Group& group, bool sleep) { group.barrier({}, sleep ? Waiting::kSleep : Waiting::kSpin); },
          "sleep"_a = false, Release())
      .def(
          "agree", [](Group& group, bool mine) { return group.agree(mine, {}); }, Release())
      .def(
          "largest", [](Group& group, std::int64_t mine) { return group.largest_of(mine, {}); }, Release())
      .def("exchange",
           [](Group& group, const nb::bytes& mine) {
             const Bytes message = from_python(mine);
             std::vector<Bytes> all;
             {
               const nb::gil_scoped_release release;
               all = group.exchange(message, {});
             }
             return to_python(all);
           })
      .def("on_node", &Group::on_node, nb::rv_policy::reference_internal)
      .def(
          "gather",
          [](Group& group, const nb::bytes& mine, const nb::object& take) {
            const std::span bytes(static_cast<const std::byte*>(mine.data()), mine.size());
            const nb::gil_scoped_release release;
            group.gather(bytes, [&](std::span<const std::byte> piece) {
              const nb::gil_scoped_acquire acquire;
              take(nb::bytes(piece.data(), piece.size()));
            });
          },
          "mine"_a, "take"_a.none() = nb::none())
      .def(
          "abort_with", [](Group& group, const std::string& reason) { group.abort_with(reason); }, Release());
  module.def("thread_groups", make_thread_groups, "size"_a);
  module.def("spare_quota", spare_quota);
  module.def("process_group", process_group, "rank"_a, "node_of_rank"_a, "segment_path"_a, "mpi"_a.none() = nb::none());
}

void bind_session(nb::module_& module) {
  nb::class_<MpiLibrary>(module, "Mpi")
      .def_prop_ro("path", [](const MpiLibrary& mpi) { return mpi.path(); })
      .def_prop_ro("version", [](const MpiLibrary& mpi) { return mpi.version(); });
  module.def("open_mpi", open_mpi, "library_path"_a, "abi"_a, "handles"_a);
  module.def("mpi_constants", constants_of_mpi, "abi"_a);
  nb::class_<PythonSession>(module, "Session")
      .def(nb::init<std::shared_ptr<DeviceRuntime>, std::shared_ptr<Group>, std::shared_ptr<MpiLibrary>,
                    const nb::object&, const std::string&, const std::vector<std::string>&, const nb::object&, int>(),
           "runtime"_a, "group"_a, "mpi"_a.none() = nb::none(), "heartbeat"_a.none() = nb::none(), "ccl_library"_a = "",
           "library_folders"_a = std::vector<std::string>{}, "on_failure"_a.none() = nb::none(), "device"_a = -1)
      .def("measure", &PythonSession::measure, "case"_a)
      .def("event_clock", &PythonSession::event_clock, "device"_a)
      .def("set_hook", &PythonSession::set_hook, "library"_a, "words"_a = "")
      .def("close", &PythonSession::close);
  module.def(
      "ccl_version",
      [](const std::string& runtime, const std::string& path, const std::vector<std::string>& folders) {
        const ccl::Library& library = ccl::Library::load(ccl::product_of(runtime), path, folders);
        return std::pair(library.version(), library.path());
      },
      "runtime"_a, "library"_a = "", "library_folders"_a = std::vector<std::string>{});
  module.def("transport_variants", [] {
    std::vector<std::pair<std::string, std::vector<std::string>>> found;
    for (const std::string_view name : transport_names()) {
      const std::vector<std::string_view> words = make_transport(name)->variants();
      found.emplace_back(name, std::vector<std::string>(words.begin(), words.end()));
    }
    return found;
  });
  module.def("ccl_config_variables", [] {
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& [variable, since] : ccl::config_variables())
      found.emplace_back(variable, ccl::version_text(since));
    return found;
  });
  const auto say_version = [&module]<typename Library>(const char* name, const Library* /*of*/) {
    module.def(
        name,
        [](const std::vector<std::string>& folders) {
          const Library& library = Library::load(folders);
          return std::pair(library.version(), library.path());
        },
        "library_folders"_a = std::vector<std::string>{});
  };
  say_version("ucx_version", static_cast<const ucx::Library*>(nullptr));
  say_version("ofi_version", static_cast<const ofi::Library*>(nullptr));
  say_version("nixl_version", static_cast<const nixl::Library*>(nullptr));
  say_version("nvshmem_version", static_cast<const nvshmem::Library*>(nullptr));
  bind_traffic(module);
  module.def("host_clock", [] { return to_python(host_clock()); });
}

}  // namespace
}  // namespace linkgauge

NB_MODULE(_core, module) {
  module.attr("FEW_SAMPLES") = linkgauge::kFewSamples;
  module.attr("RuntimeCallError") =
      nb::steal(PyErr_NewException("linkgauge._core.RuntimeCallError", PyExc_RuntimeError, nullptr));
  module.attr("PeerError") = nb::steal(PyErr_NewException("linkgauge._core.PeerError", PyExc_RuntimeError, nullptr));
  module.attr("Unsupported") =
      nb::steal(PyErr_NewException("linkgauge._core.Unsupported", PyExc_RuntimeError, nullptr));
  nb::register_exception_translator(linkgauge::translate);
  linkgauge::bind_devices(module);
  linkgauge::bind_groups(module);
  linkgauge::bind_session(module);
  linkgauge::bind_statistics(module);
}
