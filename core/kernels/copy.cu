// Copies by load and store, as memory.cuh has them.

extern "C" {

__global__ void lg_copy(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<4>(target, source, bytes);
}
__global__ void lg_copy_u1(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<1>(target, source, bytes);
}
__global__ void lg_copy_u2(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<2>(target, source, bytes);
}
__global__ void lg_copy_u8(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<8>(target, source, bytes);
}
__global__ void __launch_bounds__(512) lg_copy_u16(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<16>(target, source, bytes);
}

__global__ void __launch_bounds__(1024) lg_both_ways(void* target, const void* source, void* target_back,
                                                      const void* source_back, unsigned long long bytes) {
  linkgauge::copy_both<4>(target, source, target_back, source_back, bytes);
}
__global__ void __launch_bounds__(1024) lg_both_ways_u8(void* target, const void* source, void* target_back,
                                                         const void* source_back, unsigned long long bytes) {
  linkgauge::copy_both<8>(target, source, target_back, source_back, bytes);
}
__global__ void __launch_bounds__(1024) lg_both_ways_repeated(void* target, const void* source, void* target_back,
                                                              const void* source_back, unsigned long long bytes,
                                                              unsigned long long times,
                                                              unsigned long long target_step,
                                                              unsigned long long source_step) {
  linkgauge::copy_both_repeated(target, source, target_back, source_back, bytes, times, target_step, source_step);
}

}  // extern "C"
