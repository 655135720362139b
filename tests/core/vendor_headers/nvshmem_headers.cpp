// What is restated of NVSHMEM against its own headers. Nothing runs: a difference does not compile.
#include "transport/nvshmem/api.h"
//
#include <cuda_runtime.h>
//
#include <nvshmem_host.h>

#include "same_layout.h"

namespace linkgauge::nvshmem {
namespace {

LINKGAUGE_NVSHMEM_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

#define LINKGAUGE_COMPARE_REDUCTIONS(number, word, type)                       \
  LINKGAUGE_COMPARE(nvshmemx_##word##_sum_reduce_on_stream, Reduction)         \
  LINKGAUGE_COMPARE(nvshmemx_##word##_prod_reduce_on_stream, Reduction)        \
  LINKGAUGE_COMPARE(nvshmemx_##word##_min_reduce_on_stream, Reduction)         \
  LINKGAUGE_COMPARE(nvshmemx_##word##_max_reduce_on_stream, Reduction)         \
  LINKGAUGE_COMPARE(nvshmemx_##word##_sum_reducescatter_on_stream, Reduction)  \
  LINKGAUGE_COMPARE(nvshmemx_##word##_prod_reducescatter_on_stream, Reduction) \
  LINKGAUGE_COMPARE(nvshmemx_##word##_min_reducescatter_on_stream, Reduction)  \
  LINKGAUGE_COMPARE(nvshmemx_##word##_max_reducescatter_on_stream, Reduction)
LINKGAUGE_NVSHMEM_DATATYPES(LINKGAUGE_COMPARE_REDUCTIONS)

LINKGAUGE_SAME_VALUE(kInitWithUniqueId, NVSHMEMX_INIT_WITH_UNIQUEID);
LINKGAUGE_SAME_VALUE(kSeveralPesInTurn, NVSHMEM_STATUS_LIMITED_MPG);
LINKGAUGE_SAME_VALUE(kAdd, NVSHMEM_SIGNAL_ADD);
LINKGAUGE_SAME_VALUE(kAtLeast, NVSHMEM_CMP_GE);
LINKGAUGE_SAME_VALUE(kNoTeam, NVSHMEM_TEAM_INVALID);
LINKGAUGE_SAME_VALUE(kTeamOfAll, NVSHMEM_TEAM_WORLD);
static_assert(sizeof(Team) == sizeof(nvshmem_team_t));

static_assert(sizeof(UniqueId) == sizeof(nvshmemx_uniqueid_v1));
LINKGAUGE_SAME_FIELD(UniqueId, internal, nvshmemx_uniqueid_v1, internal);
static_assert(sizeof(UniqueIdArguments) == sizeof(nvshmemx_uniqueid_args_v1));
LINKGAUGE_SAME_FIELD(UniqueIdArguments, id, nvshmemx_uniqueid_args_v1, id);
LINKGAUGE_SAME_FIELD(UniqueIdArguments, rank, nvshmemx_uniqueid_args_v1, myrank);
LINKGAUGE_SAME_FIELD(UniqueIdArguments, ranks, nvshmemx_uniqueid_args_v1, nranks);
static_assert(sizeof(InitArguments) == sizeof(nvshmemx_init_args_v1));
LINKGAUGE_SAME_FIELD(InitArguments, unique_id, nvshmemx_init_args_v1, uid_args);
static_assert(sizeof(InitAttributes) == sizeof(nvshmemx_init_attr_v1));
LINKGAUGE_SAME_FIELD(InitAttributes, mpi_communicator, nvshmemx_init_attr_v1, mpi_comm);
LINKGAUGE_SAME_FIELD(InitAttributes, arguments, nvshmemx_init_attr_v1, args);

}  // namespace
}  // namespace linkgauge::nvshmem
