// What differs between MPI's binary interfaces beyond the size of a handle: constants that mpi.h defines and that no
// symbol of the library carries. Handles themselves (communicators, datatypes, ops, null handles) come from mpi4py.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/words.h"

namespace linkgauge {

enum class MpiAbi : std::uint8_t {
  kMpich,     // MPICH 3 and newer and its relatives (Intel MPI, Cray MPICH, MVAPICH): handles are int
  kOpenMpi,   // Open MPI 4 and 5: handles are pointers
  kStandard,  // MPI 5.0's standard ABI (libmpi_abi): handles are pointers
};

template <>
inline constexpr auto kNames<MpiAbi> = names("MPI ABI", "mpich", "openmpi", "standard");

struct MpiConstants {
  std::size_t handle_bytes;
  std::intptr_t in_place;         // MPI_IN_PLACE, a pointer
  std::intptr_t status_ignore;    // MPI_STATUS_IGNORE
  std::intptr_t statuses_ignore;  // MPI_STATUSES_IGNORE
  int any_source;
  int any_tag;
  int undefined;
  int max_error_string;
  int max_library_version_string;
};

const MpiConstants& mpi_constants(MpiAbi abi);

}  // namespace linkgauge
