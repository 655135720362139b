// Kernels whose ranks meet by NCCL's own barriers (LSA: among ranks that load and store each other's memory). Compiled
// with the device headers beside the NCCL that is loaded, 2.32 or newer; transport/nccl/device.h says what launches
// them. Of its headers those of barriers alone, which take 2 s: all of them NVRTC does not take.
#include <nccl_device/coop.h>
#include <nccl_device/impl/comm__types.h>
#include <nccl_device/impl/core__funcs.h>
#include <nccl_device/impl/lsa_barrier__funcs.h>
#include <nccl_device/impl/ptr__funcs.h>

#pragma linkgauge kernel headers

namespace linkgauge {

// Above what a multiprocessor's clock runs at: NCCL takes a wait's patience in its cycles.
constexpr u64 kCyclesPerNs = 2;

struct LsaExec : GridExec {
  ncclLsaBarrierSession<ncclCoopCta>* session;
};

// In place of direct.h's own: a barrier of NCCL's of the block's number, by its whole block.
__device__ bool meet(LsaExec& exec, const direct::Job& job, u64 meeting) {
  const ncclResult_t came =
      exec.session->sync(ncclCoopCta(), cuda::memory_order_acq_rel, job.patience * kCyclesPerNs);
  if (came != ncclSuccess) {
    const int other = static_cast<int>(exec.thread());  // NCCL gives each thread one to wait for
    const direct::Failure failure = {job.epoch, meeting, other + (job.rank <= other ? 1 : 0), exec.block()};
    exec.store_release(job.failure, direct::failure_word(failure));
  }
  return __syncthreads_or(came != ncclSuccess ? 1 : 0) == 0;
}

}  // namespace linkgauge

extern "C" {

// One block: `rounds` barriers one after the other. *gave_up: the first in which a rank did not come.
__global__ void lg_lsa_barrier(__grid_constant__ const ncclDevComm communicator, unsigned long long rounds,
                               unsigned long long patience, unsigned long long* gave_up) {
  using namespace linkgauge;
  ncclLsaBarrierSession<ncclCoopCta> session(ncclCoopCta(), communicator, ncclTeamTagLsa(), 0);
  for (u64 round = 1; round <= rounds; ++round) {
    const ncclResult_t came = session.sync(ncclCoopCta(), cuda::memory_order_acq_rel, patience * kCyclesPerNs);
    if (came != ncclSuccess) *static_cast<volatile u64*>(gave_up) = round;
    if (__syncthreads_or(came != ncclSuccess ? 1 : 0) != 0) return;
  }
}

// As lg_allreduce, but for how blocks meet.
__global__ void __launch_bounds__(512)
    lg_lsa_allreduce(__grid_constant__ const ncclDevComm communicator, void* const* lists, int ranks, int rank,
                     unsigned long long elements, unsigned int datatype, unsigned int op, unsigned int mode,
                     unsigned long long epoch, unsigned long long patience, unsigned long long* failure) {
  using namespace linkgauge;
  __shared__ direct::Places places;
  __shared__ int failure_of_block;
  if (threadIdx.x == 0) failure_of_block = 0;
  const direct::Job job = {lists, ranks, rank, elements, datatype, op, mode, epoch, patience, failure};
  ncclLsaBarrierSession<ncclCoopCta> session(ncclCoopCta(), communicator, ncclTeamTagLsa(), blockIdx.x);
  LsaExec exec = {{&failure_of_block}, &session};
  GridReducer reducer = {places, ranks, rank, op, {0, 0}, 1};
  direct::allreduce(exec, job, places, reducer);
}

}  // extern "C"
