// Allreduce in one kernel a device, as direct.h describes it.

extern "C" __global__ void __launch_bounds__(512)
    lg_allreduce(void* const* lists, int ranks, int rank, unsigned long long elements, unsigned int datatype,
                 unsigned int op, unsigned int mode, unsigned long long epoch, unsigned long long patience,
                 unsigned long long* failure) {
  using namespace linkgauge;
  __shared__ direct::Places places;
  __shared__ int failure_of_block;
  if (threadIdx.x == 0) failure_of_block = 0;  // the first meeting's barriers are between this and any look at it
  const direct::Job job = {lists, ranks, rank, elements, datatype, op, mode, epoch, patience, failure};
  GridExec exec = {&failure_of_block};
  GridReducer reducer = {places, ranks, rank, op, {0, 0}, 1};
  direct::allreduce(exec, job, places, reducer);
}
