#include "mpi/abi.h"

namespace linkgauge {
namespace {

// From mpi.h of MPICH 4.0 and 5.0, of Open MPI 4.1 and 5.0, and mpi_abi.h of MPICH 5.0; tests/mpi compares them with
// each that is installed.
constexpr MpiConstants kMpich{4, -1, 1, 1, -2, -1, -32766, 512, 8192};
constexpr MpiConstants kOpenMpi{8, 1, 0, 0, -1, -1, -32766, 256, 256};
constexpr MpiConstants kStandard{8, 1, 0, 0, -1, -2, -32766, 512, 8192};

}  // namespace

const MpiConstants& mpi_constants(MpiAbi abi) {
  switch (abi) {
    case MpiAbi::kMpich:
      return kMpich;
    case MpiAbi::kOpenMpi:
      return kOpenMpi;
    case MpiAbi::kStandard:
      break;
  }
  return kStandard;
}

}  // namespace linkgauge
