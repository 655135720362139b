#include "mpi/library.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "mpi/control_variables.h"
#include "mpi/requests.h"

namespace linkgauge {
namespace {

template <typename Handle>
class Library final : public MpiLibrary {
 public:
  Library(const SharedLibrary& library, MpiAbi abi, std::map<std::string, std::uint64_t> handles)
      : path_(library.path()), handles_(std::move(handles)), variables_(library) {
    calls_.mpi = MpiSymbols<Handle>::load(library);
    calls_.constants = mpi_constants(abi);
    calls_.byte = named("byte");
    world_ = bits_of(named("comm_world"));
    calls_.run(mpi().comm_set_errhandler, named("comm_world"), named("errors_return"));
    std::string text(static_cast<std::size_t>(calls_.constants.max_library_version_string) + 1, '\0');
    int length = 0;
    calls_.run(mpi().get_library_version, text.data(), &length);
    version_ = text.substr(0, static_cast<std::size_t>(length));
    calls_.block = made_contiguous(kMpiBlockBytes);
    contiguous_ = {{1, calls_.byte}, {kMpiBlockBytes, calls_.block}};
  }

  const std::string& path() const override { return path_; }
  const std::string& version() const override { return version_; }
  std::uint64_t world() const override { return world_; }

  std::string why_not_size(std::size_t bytes) const override {
    if (bytes <= kMostMpiCount || (bytes % kMpiBlockBytes == 0 && bytes / kMpiBlockBytes <= kMostMpiCount)) return "";
    return "MPI counts are 32 bits wide: above 2 GiB - 1 a message must be a multiple of 1 MiB, and " +
           std::to_string(bytes) + " bytes are not";
  }

  std::string why_not_reduction(Datatype datatype, ReduceOp op, std::size_t elements) const override {
    if (!handles_.contains(std::string(to_string(datatype)))) {
      return "MPI has no datatype " + std::string(to_string(datatype)) +
             "; int8 to int64, uint8 to uint64, float32 and float64 are there";
    }
    if (!handles_.contains(std::string(to_string(op)))) {
      return "MPI has no op " + std::string(to_string(op)) + "; sum, prod, min and max are there";
    }
    if (elements > kMostMpiCount) {
      return "MPI counts are 32 bits wide, so it reduces at most " + std::to_string(kMostMpiCount) +
             " elements at once, and the case has " + std::to_string(elements);
    }
    return "";
  }

  bool takes_device_pointers(std::string_view runtime) const override {
    const auto says_yes = [](const Symbol<int()>& query) { return query != nullptr && query() == 1; };
    if (runtime == "cuda") return says_yes(mpi().query_cuda_support);
    if (runtime == "hip") return says_yes(mpi().query_rocm_support) || says_yes(mpi().query_hip_support);
    return false;
  }

  std::string settle(const std::string& settings) override { return variables_.settle(settings); }

  int rank(std::uint64_t communicator) override {
    int rank = 0;
    calls_.run(mpi().comm_rank, comm(communicator), &rank);
    return rank;
  }
  std::uint64_t comm_split(std::uint64_t communicator, int color, int key) override {
    Handle made{};
    calls_.run(mpi().comm_split, comm(communicator), color < 0 ? calls_.constants.undefined : color, key, &made);
    if (color < 0) return 0;
    calls_.run(mpi().comm_set_errhandler, made, named("errors_return"));
    return bits_of(made);
  }
  void comm_free(std::uint64_t communicator) override {
    Handle handle = comm(communicator);
    calls_.run(mpi().comm_free, &handle);
  }

  void send(const void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) override {
    calls_.run(mpi().send, data, calls_.count_for(bytes), calls_.type_for(bytes), peer, tag, comm(communicator));
  }
  void recv(void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) override {
    calls_.run(mpi().recv, data, calls_.count_for(bytes), calls_.type_for(bytes), peer, tag, comm(communicator),
               calls_.status_ignore());
  }
  std::unique_ptr<MpiRequests> requests(int capacity, RequestKind kind) override {
    return std::make_unique<RequestsOf<Handle>>(calls_, capacity, kind);
  }
  void progress(std::uint64_t communicator) override {
    int found = 0;
    calls_.run(mpi().iprobe, calls_.constants.any_source, calls_.constants.any_tag, comm(communicator), &found,
               calls_.status_ignore());
  }

  void barrier(std::uint64_t communicator, MpiRequests* begun) override {
    collective(mpi().barrier, begun, comm(communicator));
  }
  void broadcast(void* data, std::size_t bytes, int root, std::uint64_t communicator, MpiRequests* begun) override {
    collective(mpi().bcast, begun, data, calls_.count_for(bytes), calls_.type_for(bytes), root, comm(communicator));
  }
  void allgather(const void* send, void* receive, std::size_t block, std::uint64_t communicator,
                 MpiRequests* begun) override {
    const auto [count, type] = calls_.counted(block);
    collective(mpi().allgather, begun, calls_.or_in_place(send), count, type, receive, count, type, comm(communicator));
  }
  void gather(const void* send, void* receive, std::size_t block, int root, std::uint64_t communicator,
              MpiRequests* begun) override {
    const auto [count, type] = calls_.counted(block);
    collective(mpi().gather, begun, calls_.or_in_place(send), count, type, receive, count, type, root,
               comm(communicator));
  }
  void scatter(const void* send, void* receive, std::size_t block, int root, std::uint64_t communicator,
               MpiRequests* begun) override {
    const auto [count, type] = calls_.counted(block);
    collective(mpi().scatter, begun, send, count, type, const_cast<void*>(calls_.or_in_place(receive)), count, type,
               root, comm(communicator));
  }
  void alltoall(const void* send, void* receive, std::size_t block, std::uint64_t communicator,
                MpiRequests* begun) override {
    const auto [count, type] = calls_.counted(block);
    collective(mpi().alltoall, begun, send, count, type, receive, count, type, comm(communicator));
  }
  std::uint64_t contiguous_type(std::size_t bytes) override {
    const auto [place, is_new] = contiguous_.try_emplace(bytes);
    if (is_new) place->second = made_contiguous(bytes);
    return bits_of(place->second);
  }
  std::uint64_t region_type(const HaloRegion& region) override {
    Handle run{};
    Handle plane{};
    Handle whole{};
    calls_.run(mpi().type_contiguous, static_cast<int>(region.run_bytes), calls_.byte, &run);
    calls_.run(mpi().type_create_hvector, static_cast<int>(region.rows), 1,
               static_cast<std::intptr_t>(region.row_stride), run, &plane);
    calls_.run(mpi().type_create_hvector, static_cast<int>(region.planes), 1,
               static_cast<std::intptr_t>(region.plane_stride), plane, &whole);
    calls_.run(mpi().type_commit, &whole);
    calls_.run(mpi().type_free, &plane);
    calls_.run(mpi().type_free, &run);
    return bits_of(whole);
  }
  void type_free(std::uint64_t type) override {
    Handle handle = handle_of<Handle>(type);
    calls_.run(mpi().type_free, &handle);
  }
  void alltoallv(const void* send, void* receive, const AlltoallvCounts& counts, std::uint64_t type,
                 std::uint64_t communicator, MpiRequests* begun) override {
    counted(mpi().alltoallv, begun, send, receive, counts, type, communicator);
  }
  void neighbor_alltoallv(const void* send, void* receive, const AlltoallvCounts& counts, std::uint64_t type,
                          std::uint64_t neighbors, MpiRequests* begun) override {
    counted(mpi().neighbor_alltoallv, begun, send, receive, counts, type, neighbors);
  }
  std::uint64_t neighbors(std::uint64_t communicator, const std::vector<int>& sources,
                          const std::vector<int>& targets) override {
    // Weights of one: MPI's own word for none is a constant that each library has in its own way.
    const std::vector<int> weights(std::max(sources.size(), targets.size()) + 1, 1);
    Handle made{};
    calls_.run(mpi().dist_graph_create_adjacent, comm(communicator), static_cast<int>(sources.size()), sources.data(),
               weights.data(), static_cast<int>(targets.size()), targets.data(), weights.data(), named("info_null"), 0,
               &made);
    calls_.run(mpi().comm_set_errhandler, made, named("errors_return"));
    return bits_of(made);
  }
  void reduce(const void* send, void* receive, std::size_t elements, Datatype datatype, ReduceOp op, int root,
              std::uint64_t communicator, MpiRequests* begun) override {
    collective(mpi().reduce, begun, calls_.or_in_place(send), receive, static_cast<int>(elements), type(datatype),
               of(op), root, comm(communicator));
  }
  void allreduce(const void* send, void* receive, std::size_t elements, Datatype datatype, ReduceOp op,
                 std::uint64_t communicator, MpiRequests* begun) override {
    collective(mpi().allreduce, begun, calls_.or_in_place(send), receive, static_cast<int>(elements), type(datatype),
               of(op), comm(communicator));
  }
  void reduce_scatter_block(const void* send, void* receive, std::size_t elements, Datatype datatype, ReduceOp op,
                            std::uint64_t communicator, MpiRequests* begun) override {
    collective(mpi().reduce_scatter_block, begun, calls_.or_in_place(send), receive, static_cast<int>(elements),
               type(datatype), of(op), comm(communicator));
  }

  std::uint64_t win_create(void* base, std::size_t bytes, std::uint64_t communicator) override {
    Handle window{};
    calls_.run(mpi().win_create, base, static_cast<std::intptr_t>(bytes), 1, named("info_null"), comm(communicator),
               &window);
    calls_.run(mpi().win_set_errhandler, window, named("errors_return"));
    calls_.run(mpi().win_lock_all, 0, window);
    return bits_of(window);
  }
  void win_free(std::uint64_t window) override {
    Handle handle = comm(window);
    calls_.run(mpi().win_unlock_all, handle);
    calls_.run(mpi().win_free, &handle);
  }
  void put(const void* source, std::size_t bytes, int target, std::size_t target_offset,
           std::uint64_t window) override {
    const auto [count, type] = calls_.counted(bytes);
    calls_.run(mpi().put, source, count, type, target, static_cast<std::intptr_t>(target_offset), count, type,
               comm(window));
  }
  void get(void* target, std::size_t bytes, int source, std::size_t source_offset, std::uint64_t window) override {
    const auto [count, type] = calls_.counted(bytes);
    calls_.run(mpi().get, target, count, type, source, static_cast<std::intptr_t>(source_offset), count, type,
               comm(window));
  }
  void flush(int peer, std::uint64_t window) override { calls_.run(mpi().win_flush, peer, comm(window)); }
  void win_sync(std::uint64_t window) override { calls_.run(mpi().win_sync, comm(window)); }

 private:
  const MpiSymbols<Handle>& mpi() const { return calls_.mpi; }
  template <typename... Taken, typename... Given>
  void collective(const MpiCollectiveSymbols<Handle, Taken...>& call, MpiRequests* begun, Given... given) {
    if (begun == nullptr) return calls_.run(call, given...);
    auto& requests = static_cast<RequestsOf<Handle>&>(*begun);
    if (requests.persistent()) {
      if (call.persistent == nullptr)
        throw Unsupported(path_ + " has no persistent form of " + call.name + ", which MPI 4 has");
      return calls_.check(call.persistent(given..., named("info_null"), requests.next()), call.name);
    }
    if (call.nonblocking == nullptr) throw Unsupported(path_ + " has no form of " + call.name + " that does not block");
    calls_.check(call.nonblocking(given..., requests.next()), call.name);
  }
  template <typename Call>
  void counted(const Call& call, MpiRequests* begun, const void* send, void* receive, const AlltoallvCounts& counts,
               std::uint64_t type, std::uint64_t communicator) {
    const Handle unit = handle_of<Handle>(type);
    collective(call, begun, send, counts.sent.counts.data(), counts.sent.displacements.data(), unit, receive,
               counts.received.counts.data(), counts.received.displacements.data(), unit, comm(communicator));
  }
  // Never freed: the library may be finalized before this object goes.
  Handle made_contiguous(std::size_t bytes) const {
    Handle type{};
    calls_.run(mpi().type_contiguous, static_cast<int>(bytes), calls_.byte, &type);
    calls_.run(mpi().type_commit, &type);
    return type;
  }
  static Handle comm(std::uint64_t bits) { return handle_of<Handle>(bits); }
  Handle named(const std::string& name) const { return handle_of<Handle>(handles_.at(name)); }
  Handle type(Datatype datatype) const { return types_[static_cast<std::size_t>(datatype)]; }
  Handle of(ReduceOp op) const { return ops_[static_cast<std::size_t>(op)]; }

  // Looked up by number in timed regions; zero where why_not_reduction says so.
  static std::vector<Handle> table(const std::map<std::string, std::uint64_t>& handles, int count, auto&& name_of) {
    std::vector<Handle> result(static_cast<std::size_t>(count));
    for (int number = 0; number < count; ++number) {
      const auto found = handles.find(std::string(name_of(number)));
      if (found != handles.end()) result[static_cast<std::size_t>(number)] = handle_of<Handle>(found->second);
    }
    return result;
  }

  std::string path_;
  std::map<std::string, std::uint64_t> handles_;
  ControlVariables variables_;
  MpiCalls<Handle> calls_;
  std::map<std::size_t, Handle> contiguous_;  // by bytes
  std::vector<Handle> types_ = table(handles_, 12, [](int n) { return to_string(static_cast<Datatype>(n)); });
  std::vector<Handle> ops_ = table(handles_, 5, [](int n) { return to_string(static_cast<ReduceOp>(n)); });
  std::uint64_t world_ = 0;
  std::string version_;
};

}  // namespace

std::unique_ptr<MpiLibrary> open_mpi_library(const std::string& path, MpiAbi abi,
                                             const std::map<std::string, std::uint64_t>& handles) {
  for (const char* name : {"comm_world", "info_null", "errors_return", "byte"}) {
    if (!handles.contains(name)) throw CallerError("the MPI handle '" + std::string(name) + "' is missing");
  }
  // mpi4py opens its library for itself alone, so the global scope does not show it.
  const SharedLibrary library = SharedLibrary::already_open(path);
  if (!library) {
    throw CallerError("the MPI library " + path +
                      " is not loaded in this process, expected the one that mpi4py opened");
  }
  if (mpi_constants(abi).handle_bytes == sizeof(int)) return std::make_unique<Library<int>>(library, abi, handles);
  return std::make_unique<Library<void*>>(library, abi, handles);
}

}  // namespace linkgauge
