// The MPI library that mpi4py loaded, called through its own function pointers: no MPI header, nothing linked.
//
// Every call checks its return code and throws RuntimeCallError with MPI_Error_string's text. Only one thread of a
// process may call (MPI_THREAD_FUNNELED). Communicators and windows are handles as bits. Sizes are bytes; above 2^31-1
// a contiguous datatype of 1 MiB blocks is used, so such a size must be a multiple of that (`why_not_size`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/case_spec.h"
#include "base/not_copied.h"
#include "mpi/abi.h"
#include "mpi/counts.h"
#include "traffic/halo.h"

namespace linkgauge {

// What requests are for. Receives are taken back when they go, so that their memory may go; persistent ones stay when
// they are complete, until they go. Others go as they are: no library takes back a send or a collective.
enum class RequestKind : std::uint8_t { kReceives, kPersistent, kOthers };

// A fixed number of places for requests under way. Not thread-safe.
class MpiRequests : NotCopied {
 public:
  virtual ~MpiRequests() = default;
  // The caller keeps count below the capacity.
  virtual void isend(const void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) = 0;
  virtual void irecv(void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) = 0;
  // One of a datatype that begins at `data`.
  virtual void isend_one(const void* data, std::uint64_t type, int peer, int tag, std::uint64_t communicator) = 0;
  virtual void irecv_one(void* data, std::uint64_t type, int peer, int tag, std::uint64_t communicator) = 0;
  virtual void wait_all() = 0;
  virtual bool test_all() = 0;   // true: all are complete, and the places free
  virtual void start_all() = 0;  // persistent ones only: all that there are, again
  virtual int count() const = 0;
  virtual int capacity() const = 0;
};

class MpiLibrary {
 public:
  virtual ~MpiLibrary() = default;

  virtual const std::string& path() const = 0;
  virtual const std::string& version() const = 0;  // MPI_Get_library_version
  virtual std::uint64_t world() const = 0;

  // "" or why, in one sentence that a user can act on.
  virtual std::string why_not_size(std::size_t bytes) const = 0;
  virtual std::string why_not_reduction(Datatype datatype, ReduceOp op, std::size_t elements) const = 0;
  // Whether the library itself says that it takes pointers to memory of these devices ("cuda", "hip").
  virtual bool takes_device_pointers(std::string_view runtime) const = 0;

  // Control variables of the library for what comes, in place of those of the last call (ControlVariables::settle).
  virtual std::string settle(const std::string& settings) = 0;

  virtual int rank(std::uint64_t communicator) = 0;
  // color < 0: this rank takes no part, and gets 0.
  virtual std::uint64_t comm_split(std::uint64_t communicator, int color, int key) = 0;
  virtual void comm_free(std::uint64_t communicator) = 0;

  virtual void send(const void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) = 0;
  virtual void recv(void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) = 0;
  virtual std::unique_ptr<MpiRequests> requests(int capacity, RequestKind kind = RequestKind::kOthers) = 0;
  virtual void progress(std::uint64_t communicator) = 0;  // MPI_Iprobe: lets the library move what is under way

  // Collectives. `send` nullptr: in place (scatter: `receive` nullptr at the root). Sizes are of one block, or of the
  // whole buffer where nothing is cut. With `begun` they do not block: a request is put there, of a persistent one to
  // be started. Throw Unsupported where the library has no such form.
  virtual void barrier(std::uint64_t communicator, MpiRequests* begun = nullptr) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root, std::uint64_t communicator,
                         MpiRequests* begun = nullptr) = 0;
  virtual void allgather(const void* send, void* receive, std::size_t block, std::uint64_t communicator,
                         MpiRequests* begun = nullptr) = 0;
  virtual void gather(const void* send, void* receive, std::size_t block, int root, std::uint64_t communicator,
                      MpiRequests* begun = nullptr) = 0;
  virtual void scatter(const void* send, void* receive, std::size_t block, int root, std::uint64_t communicator,
                       MpiRequests* begun = nullptr) = 0;
  // MPI_Alltoall moves a rank's own block too, from its source to its target buffer.
  virtual void alltoall(const void* send, void* receive, std::size_t block, std::uint64_t communicator,
                        MpiRequests* begun = nullptr) = 0;
  // `type` is contiguous_type(counts.unit_bytes), made before it is timed.
  virtual void alltoallv(const void* send, void* receive, const AlltoallvCounts& counts, std::uint64_t type,
                         std::uint64_t communicator, MpiRequests* begun = nullptr) = 0;
  // MPI_Neighbor_alltoallv over `neighbors`; counts are of edges.
  virtual void neighbor_alltoallv(const void* send, void* receive, const AlltoallvCounts& counts, std::uint64_t type,
                                  std::uint64_t neighbors, MpiRequests* begun = nullptr) = 0;
  // A communicator in whose neighbor collectives this rank receives from and sends to these, in this order.
  virtual std::uint64_t neighbors(std::uint64_t communicator, const std::vector<int>& sources,
                                  const std::vector<int>& targets) = 0;
  // A datatype of so many bytes, as bits; made at the first call for this number and kept.
  virtual std::uint64_t contiguous_type(std::size_t bytes) = 0;
  // Cells that lie apart, as bits; to be given back by type_free.
  virtual std::uint64_t region_type(const HaloRegion& region) = 0;
  virtual void type_free(std::uint64_t type) = 0;
  virtual void reduce(const void* send, void* receive, std::size_t elements, Datatype datatype, ReduceOp op, int root,
                      std::uint64_t communicator, MpiRequests* begun = nullptr) = 0;
  virtual void allreduce(const void* send, void* receive, std::size_t elements, Datatype datatype, ReduceOp op,
                         std::uint64_t communicator, MpiRequests* begun = nullptr) = 0;
  // `elements` of one block. In place the result comes to the front of `receive`.
  virtual void reduce_scatter_block(const void* send, void* receive, std::size_t elements, Datatype datatype,
                                    ReduceOp op, std::uint64_t communicator, MpiRequests* begun = nullptr) = 0;

  // One-sided: a window is locked for all ranks (shared) from its creation to its end. Creation and end are collective.
  virtual std::uint64_t win_create(void* base, std::size_t bytes, std::uint64_t communicator) = 0;
  virtual void win_free(std::uint64_t window) = 0;
  virtual void put(const void* source, std::size_t bytes, int target, std::size_t target_offset,
                   std::uint64_t window) = 0;
  virtual void get(void* target, std::size_t bytes, int source, std::size_t source_offset, std::uint64_t window) = 0;
  virtual void flush(int peer, std::uint64_t window) = 0;
  virtual void win_sync(std::uint64_t window) = 0;
};

// `path` must already be loaded in this process (mpi4py did that). `handles` are mpi4py's MPI._handleof of:
//   comm_world, info_null, errors_return, byte            (required)
//   int8 uint8 int32 uint32 int64 uint64 float32 float64  (datatypes of reductions)
//   sum prod min max                                      (ops)
// Sets MPI_ERRORS_RETURN on comm_world. Throws CallerError or Unsupported naming what is missing.
std::unique_ptr<MpiLibrary> open_mpi_library(const std::string& path, MpiAbi abi,
                                             const std::map<std::string, std::uint64_t>& handles);

}  // namespace linkgauge
